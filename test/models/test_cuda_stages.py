# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What each stage launches, found out without a GPU: every size has its kernels, and every kernel is in its file."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.config import read_json
from flashrt_ros.models.hybrid import Hybrid
from flashrt_ros.models.pi0 import Pi0
from flashrt_ros.models.pi0_config import read_pi0
from flashrt_ros.models.policy_model import PolicyModel
from flashrt_ros.models.synthetic import RandomCheckpoint, write_synthetic
from flashrt_ros.models.synthetic_pi0 import RandomPi0Checkpoint
from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.models.tiny_pi0 import write_tiny_pi0
from flashrt_ros.runtime.buffers import BufferSet

cuda_ops = pytest.importorskip("flashrt_ros.models.cuda.ops", reason="needs requirements/cuda.txt")
nvrtc = pytest.importorskip("flashrt_ros.runtime.cuda.nvrtc", reason="needs requirements/cuda.txt")


SHARED_MEMORY = {(8, 0): 163 << 10, (8, 9): 99 << 10, (9, 0): 227 << 10, (12, 0): 99 << 10}
"""Bytes that a block may have, static ones among them (CUDA Programming Guide, "Compute Capabilities")."""
MOST_BLOCKS = (2**31 - 1, 65535, 65535)
"""Along each dimension of a grid (likewise)."""
_STATIC = re.compile(r"Compiling entry function '(\w+)'(?:(?!Compiling).)*?Used [^\n]*?(\d+) bytes smem", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Launch:
    """What decides whether a GPU can run it."""

    source: str
    kernel: str
    grid: tuple[int, ...]
    shared: int
    cluster: int


class Recorder:
    """Stands for a launcher, an arena and cuBLASLt: notes what would run."""

    stream, record = 0, None

    def __init__(self, capability: tuple[int, int], multiprocessors: int) -> None:
        self.capability, self.multiprocessors = capability, multiprocessors
        self.device = SimpleNamespace(properties=SimpleNamespace(shared_memory=SHARED_MEMORY[capability]))
        self.launched: set[Launch] = set()

    def launch(
        self, source: str, kernel: str, grid: Any, block: Any, *arguments: Any, shared: int = 0, cluster: int = 1
    ) -> None:
        blocks = (grid,) if isinstance(grid, int) else tuple(grid)
        self.launched.add(Launch(source, kernel, blocks, shared, cluster))

    launch_with = launch

    def encode_tiles(self, x: torch.Tensor, *shapes: Any) -> bytes:
        return bytes(128)

    def resident_clusters(self, *launch: Any) -> int:
        return 16

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    def workspace(self, problem: Any) -> int:
        return 1024

    def run(self, *arguments: Any) -> str:
        return ""


def launches(
    model: PolicyModel, capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch, multiprocessors: int = 132
) -> set[Launch]:
    """Run every stage with kernels that do nothing."""
    recorder = Recorder(capability, multiprocessors)
    monkeypatch.setattr("flashrt_ros.models.cuda.linear.CublasLt", lambda: recorder)
    ops = cuda_ops.CudaOps(recorder)
    ops.arena = recorder
    buffers = BufferSet(model.buffers(), lambda nbytes, memory: torch.empty(nbytes, dtype=torch.uint8, device="meta"))
    for stage in model.stages():
        stage.run(ops, buffers)
    return recorder.launched


@pytest.fixture(params=["append", "starvla", "2B"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[torch.dtype], Hybrid]:
    if request.param == "2B":
        tensors = RandomCheckpoint(write_synthetic(tmp_path, request.param))
        return lambda dtype: Hybrid.from_folder(tmp_path, dtype, tensors)
    write_tiny_checkpoint(tmp_path, mtp=True, layout=request.param, max_rows=512, max_instruction_tokens=48)
    return lambda dtype: Hybrid.from_folder(tmp_path, dtype)


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)], ids=["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_every_stage_has_kernels(
    make: Callable[[torch.dtype], Hybrid],
    dtype: torch.dtype,
    capability: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launched = launches(make(dtype), capability, monkeypatch)
    assert len(_names(launched)) > 10
    assert not _missing(launched)


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)], ids=["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("kind", ["pi0", "pi05"])
def test_every_stage_of_pi0_has_kernels(
    tmp_path: Path, kind: str, dtype: torch.dtype, capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_tiny_pi0(tmp_path, kind)
    tiny = Pi0(read_json(folder / "config.json"), {}, Checkpoint(folder), dtype)
    values = {"action_horizon": 50}
    tensors = RandomPi0Checkpoint(read_pi0(values, {}, kind == "pi05"))
    published = [Pi0(values, {"prefix_lock": lock}, tensors, dtype) for lock in (False, True)]
    launched = {launch for model in (tiny, *published) for launch in launches(model, capability, monkeypatch)}
    hopper, sources = capability == (9, 0) and dtype == torch.bfloat16, {launch.source for launch in launched}
    assert all((source in sources) == hopper for source in ("denoise_linear", "denoise_layers"))
    assert not _missing(launched)


@pytest.mark.parametrize("capability", [(8, 9), (9, 0)], ids=["sm_89", "sm_90"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_weights_of_one_byte_have_kernels(
    tmp_path: Path, dtype: torch.dtype, capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_tiny_pi0(tmp_path, "pi0")
    tiny = Pi0(read_json(folder / "config.json"), {}, Checkpoint(folder), dtype, fp8=True)
    values = {"action_horizon": 50}
    published = Pi0(values, {}, RandomPi0Checkpoint(read_pi0(values, {}, False)), dtype, fp8=True)
    for model, heads in ((tiny, "fp8_norm"), (published, "fp8_heads")):  # those of the tiny one are too narrow
        there = {"fp8_add", "fp8_gelu", heads} if dtype == torch.bfloat16 else {"dequantise_f32"}
        launched = launches(model, capability, monkeypatch)
        assert {kernel for source, kernel in _names(launched) if source == "fp8_linear"} == there
        assert not _missing(launched)


@pytest.mark.parametrize(
    ("capability", "arch"), [((8, 9), "sm_89"), ((12, 0), "sm_120a")], ids=["sm_89 (and sm_86)", "sm_120 (and sm_121)"]
)
@pytest.mark.parametrize("weights", ["2B", "bfloat16", "fp8"])
def test_every_launch_fits_the_gpus_with_the_least_shared_memory(
    tmp_path: Path, weights: str, capability: tuple[int, int], arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if weights == "2B":
        tensors = RandomCheckpoint(write_synthetic(tmp_path, weights))
        model: PolicyModel = Hybrid.from_folder(tmp_path, torch.bfloat16, tensors)
    else:
        values = {"action_horizon": 50}
        pi0 = RandomPi0Checkpoint(read_pi0(values, {}, False))
        model = Pi0(values, {}, pi0, torch.bfloat16, fp8=weights == "fp8")
    for multiprocessors in (14, 48, 188):  # those of an RTX PRO 500, a Spark and an RTX PRO 6000
        for launch in launches(model, capability, monkeypatch, multiprocessors):
            shared = launch.shared + (_static(launch.source, arch).get(launch.kernel, 0) if launch.shared else 0)
            assert shared <= SHARED_MEMORY[capability], launch
            assert all(0 < blocks <= most for blocks, most in zip(launch.grid, MOST_BLOCKS, strict=False)), launch
            assert launch.grid[0] % launch.cluster == 0, launch
            assert launch.cluster <= (8 if capability >= (9, 0) else 1), launch


def _names(launched: set[Launch]) -> set[tuple[str, str]]:
    return {(launch.source, launch.kernel) for launch in launched}


def _missing(launched: set[Launch]) -> set[tuple[str, str]]:
    return {(source, kernel) for source, kernel in _names(launched) if kernel.encode() + b"\0" not in _cubin(source)}


@cache
def _static(source: str, arch: str) -> dict[str, int]:
    """Bytes of shared memory that kernels of a file have by themselves, where they have some."""
    _, log = nvrtc.compile_file(nvrtc.KERNELS / f"{source}.cu", arch, verbose=True)
    return {kernel: int(nbytes) for kernel, nbytes in _STATIC.findall(log)}


@cache
def _cubin(source: str) -> bytes:
    return nvrtc.compile_file(nvrtc.KERNELS / f"{source}.cu", "sm_90a")[0]
