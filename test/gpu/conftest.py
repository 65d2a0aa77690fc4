# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A GPU, and the comparison of an operation's kernels with its plain body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from flashrt_ros.models.ops import Ops
from flashrt_ros.models.reference.quantised import Quantised, quantise

HOPPER, THOR = (9, 0), (11, 0)
"""Compute capabilities."""

FACTOR = 1.5
"""How many times the error of plain torch in the same precision a kernel may have."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    why = _missing()
    if why:
        for item in items:
            if "test/gpu/" in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=why))


def _missing() -> str:
    if not torch.cuda.is_available():
        return "needs an NVIDIA GPU and a CUDA build of torch"
    try:
        import cuda.bindings  # noqa: F401
    except ImportError:
        return "needs requirements/cuda.txt"
    return ""


class Inputs:
    """Fresh random arguments on the GPU. Outputs are poisoned with NaN, or with -1 in every byte."""

    def __init__(self, dtype: torch.dtype, seed: int) -> None:
        self.dtype = dtype
        self._generator = torch.Generator("cuda").manual_seed(seed)

    def rows(self, *shape: int, scale: float = 1.0) -> Tensor:
        return self.f32(*shape, scale=scale).to(self.dtype)

    vector = rows

    def f32(self, *shape: int, scale: float = 1.0) -> Tensor:
        return torch.randn(shape, generator=self._generator, device="cuda") * scale

    def fp8(self, m: int, k: int) -> Quantised:
        """Values that keep a product of order one, in rows whose scales differ; the first row is zero."""
        apart = (torch.arange(m, device="cuda") % 5 / 2)[:, None]
        return quantise(self.f32(m, k, scale=k**-0.5) * apart)

    def index(self, high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=self._generator, device="cuda")

    def scalar(self, value: int) -> Tensor:
        return torch.tensor([value], dtype=torch.int64, device="cuda")

    def out(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        dtype = dtype or self.dtype
        return torch.full(shape, float("nan") if dtype.is_floating_point else -1, dtype=dtype, device="cuda")

    def out_f32(self, *shape: int) -> Tensor:
        return self.out(*shape, dtype=torch.float32)

    def poisoned(self, x: Tensor, live: int) -> Tensor:
        """The rows from `live` on become NaN."""
        x[live:] = float("nan")
        return x


class Gpu:
    """Runs operations on the GPU and judges them.

    Attributes:
        ops: as the GPU runs them.
        record: the launches of every operation so far.
    """

    def __init__(self) -> None:
        from flashrt_ros.models.cuda.ops import CudaOps
        from flashrt_ros.runtime.cuda.arena import Arena
        from flashrt_ros.runtime.cuda.driver import Device
        from flashrt_ros.runtime.cuda.launcher import KernelLauncher

        self.device = Device()
        self._stream = torch.cuda.ExternalStream(self.device.stream)
        torch.cuda.set_stream(self._stream)
        torch.backends.cuda.matmul.allow_tf32 = False
        self.record: list[str] = []
        nbytes = 1 << 30
        arena = Arena(self.device.allocate(nbytes, "scratch"), nbytes)

        def ops_of(capability: tuple[int, int]) -> Any:
            launcher = KernelLauncher(self.device)
            launcher.capability, launcher.record = capability, self.record
            ops = CudaOps(launcher)
            ops.arena = arena
            return ops

        own = self.device.properties.capability
        self.ops = ops_of(own)
        self._all_ops = [self.ops, ops_of(THOR)] if own == HOPPER else [self.ops]

    def check(
        self,
        name: str,
        make: Callable[[Inputs], dict[str, Any]],
        outputs: list[str],
        dtype: torch.dtype,
        live: Mapping[str, Any] | None = None,
        seed: int = 0,
        floor: float = 1e-6,
    ) -> None:
        """Assert that the kernels of operation `name` agree with its body in float64.

        On Hopper those that a Thor would launch are judged as well, which has not the instructions of Hopper alone.
        `live` says which part of an output is specified (an index); `floor` is the error, relative to the largest
        value, that is allowed where plain torch has less.
        """
        torch.cuda.set_stream(self._stream)  # a backend of another test has its own
        given = make(Inputs(dtype, seed))
        exact, plain = _copies(given, _wide), _copies(given)
        getattr(Ops("cuda"), name)(**exact)
        getattr(Ops("cuda"), name)(**plain)
        where = live or {}
        for ops in self._all_ops:
            ours, again = (self._run(ops, name, given) for _ in range(2))
            for key, before in given.items():
                for part, (was, is_now) in enumerate(zip(_tensors(before), _tensors(ours[key]), strict=True)):
                    label = f"{name}.{key}[{part}] for {ops.cuda.capability}"
                    assert _same(is_now, _tensors(again[key])[part]), f"{label}: two runs differ"
                    if key not in outputs:
                        assert _same(is_now, was), f"{label} was changed"
                        continue
                    index = where.get(key, ...)
                    expected, torchs = _tensors(exact[key])[part][index], _tensors(plain[key])[part][index]
                    _judge(label, expected, torchs, is_now[index], floor)

    def _run(self, ops: Any, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        arguments = _copies(given)
        getattr(ops, name)(**arguments)
        self.device.synchronize(f"in {name}")
        return arguments


def _judge(label: str, expected: Tensor, torchs: Tensor, ours: Tensor, floor: float) -> None:
    if not ours.dtype.is_floating_point:
        assert torch.equal(ours, torchs), label
        return
    assert torch.isfinite(ours).all(), f"{label} has values that are not finite"
    scale = max(float(expected.abs().max()), 1e-30) if expected.numel() else 1.0
    wrong, allowed = (float((x.double() - expected).abs().max()) if x.numel() else 0.0 for x in (ours, torchs))
    assert wrong <= FACTOR * allowed + floor * scale, f"{label}: error {wrong:.3e}, plain torch {allowed:.3e}"
    mean, mean_allowed = (float((x.double() - expected).abs().mean()) if x.numel() else 0.0 for x in (ours, torchs))
    assert mean <= FACTOR * mean_allowed + floor * scale, f"{label}: mean {mean:.3e}, plain torch {mean_allowed:.3e}"


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return list(value) if isinstance(value, (list, tuple)) else []


def _same(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8))


def _wide(x: Tensor) -> Tensor:
    return x.double() if x.dtype.is_floating_point else x


def _copies(given: Mapping[str, Any], convert: Callable[[Tensor], Tensor] = lambda x: x) -> dict[str, Any]:
    """Each argument anew with the strides it had; what is one tensor under two names stays one."""
    made: dict[int, Tensor] = {}

    def copy(value: Any) -> Any:
        if isinstance(value, Tensor):
            if id(value) not in made:
                x = convert(value)
                made[id(value)] = torch.empty_strided(x.shape, value.stride(), dtype=x.dtype, device=x.device).copy_(x)
            return made[id(value)]
        if isinstance(value, Quantised):
            return Quantised(*map(copy, value))
        return [copy(part) for part in value] if isinstance(value, (list, tuple)) else value

    return {key: copy(value) for key, value in given.items()}


@pytest.fixture(scope="session")
def gpu() -> Gpu:
    return Gpu()


@pytest.fixture(autouse=True)
def launched(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Iterator[None]:
    """Notes in the report which kernels a test launches."""
    if "gpu" not in request.fixturenames:
        yield
        return
    record = request.getfixturevalue("gpu").record
    record.clear()
    yield
    names = {line.split()[0] for line in record}
    record_property("kernels", " ".join(sorted(name for name in names if "." in name)))


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture
def inputs() -> type[Inputs]:
    return Inputs
