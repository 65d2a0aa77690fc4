# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Products with weights: own kernels for few rows and for odd sizes, cuBLASLt for many rows."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from flashrt_ros.models.cuda.base import CudaBase
from flashrt_ros.models.reference.dense import Activation, Dense
from flashrt_ros.runtime.cuda.cublaslt import ALIGNMENT, CublasLt, Problem
from flashrt_ros.runtime.cuda.launcher import KernelLauncher

FEW_ROWS = 16
"""Up to here few_rows_linear.cu is the faster one: it reads weights at the speed of memory."""

_ACTIVATIONS: dict[Activation | None, int] = {None: 0, "gelu": 1, "gelu_tanh": 2, "relu": 3, "silu": 4}
"""The numbers of kernels/linear.cuh."""

_LETTERS = {torch.float32: "f", torch.bfloat16: "b"}
_PLAIN = ("fff", "bbb", "bbf", "fbb", "fbf")
"""Types of x, w and out."""

_TILE, _PLAIN_THREADS = 64, 256
_FEW_THREADS, _FEW_RING = 256, 64 << 10
_ACTIVATION_THREADS = 256


class CudaLinear(CudaBase):
    """Products of rows with weights, which kernels read before what goes before them has ended."""

    def __init__(self, cuda: KernelLauncher) -> None:
        super().__init__(cuda)
        self._cublaslt = CublasLt()

    def linear(
        self,
        x: Tensor,
        w: Tensor,
        out: Tensor,
        bias: Tensor | None = None,
        act: Activation | None = None,
        add: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> None:
        """See Dense.linear: the sum, the activation and `add` in float32, rounded once."""
        types = _check(x, w, out, bias, add)
        if types in ("bbb", "bbf") and x.shape[0] <= FEW_ROWS and _aligned(x, w):
            self._few_rows(x, w, out, bias, act, add, rows)
        elif types in ("bbb", "fff") and rows is None and not (act and add is not None) and _aligned(x, w, out, add):
            self._many_rows(x, w, out, bias, act, add)
        else:
            self._any_rows(types, x, w, out, bias, act, add, rows)

    def norm_linear(self, x: Tensor, gain: Tensor, w: Tensor, out: Tensor, eps: float) -> None:
        """See Dense.norm_linear: for few rows 1 / rms(x) scales the finished sum."""
        if self._normed_few_rows(x, gain, w, out):
            self._few_rows_normed("norm", x, gain, w, out, eps)
        else:
            Dense.norm_linear(self, x, gain, w, out, eps)  # type: ignore[arg-type]

    def norm_gated_linear(self, x: Tensor, gain: Tensor, w: Tensor, out: Tensor, eps: float) -> None:
        """See Dense.norm_gated_linear: for few rows one kernel."""
        if self._normed_few_rows(x, gain, w, out):
            self._few_rows_normed("gated", x, gain, w, out, eps)
        else:
            Dense.norm_gated_linear(self, x, gain, w, out, eps)  # type: ignore[arg-type]

    def linear_numerics(self) -> Mapping[str, str]:
        """What decides the bytes of products, apart from the kernels that are launched."""
        return self._cublaslt.describe()

    def _few_rows(
        self,
        x: Tensor,
        w: Tensor,
        out: Tensor,
        bias: Tensor | None,
        act: Activation | None,
        add: Tensor | None,
        rows: Tensor | None,
    ) -> None:
        (n, k), m = x.shape, w.shape[0]
        kind = "bf16" if out.dtype == torch.bfloat16 else "f32"
        strides = (x.stride(0), 0 if add is None else add.stride(0), out.stride(0))
        arguments = (x, w, bias, add, out, rows, n, m, k, *strides, _ACTIVATIONS[act])
        kernel = f"few_rows_linear_{kind}_{_tiles(n)}"
        self.cuda.launch("few_rows_linear", kernel, self._few_grid(m, 16), _FEW_THREADS, *arguments, shared=_FEW_RING)

    def _few_rows_normed(self, kind: str, x: Tensor, gain: Tensor, w: Tensor, out: Tensor, eps: float) -> None:
        (n, k), m = x.shape, out.shape[1]
        arguments = (x, gain, w, out, n, m, k, x.stride(0), out.stride(0), eps)
        grid = self._few_grid(m, 8 if kind == "gated" else 16)
        kernel = f"few_rows_{kind}_{_tiles(n)}"
        self.cuda.launch("few_rows_linear", kernel, grid, _FEW_THREADS, *arguments, shared=_FEW_RING)

    def _few_grid(self, m: int, height: int) -> int:
        """One block a multiprocessor, so that the next kernel's fit beside them and read ahead."""
        return min(-(-m // height), self.cuda.multiprocessors)

    def _normed_few_rows(self, x: Tensor, gain: Tensor, w: Tensor, out: Tensor) -> bool:
        few = _check(x, w, out, None, None) == "bbb" and x.shape[0] <= FEW_ROWS and _aligned(x, w)
        return few and gain.dtype == torch.float32

    def _many_rows(
        self, x: Tensor, w: Tensor, out: Tensor, bias: Tensor | None, act: Activation | None, add: Tensor | None
    ) -> None:
        (n, k), m = x.shape, w.shape[0]
        fused = act if act in ("relu", "gelu_tanh") else None
        problem = Problem(
            dtype="bf16" if w.dtype == torch.bfloat16 else "f32",
            n=n,
            m=m,
            k=k,
            ldx=_stride(x),
            ldout=_stride(out),
            ldadd=0 if add is None else _stride(add),
            bias=bias is not None,
            function=fused or "none",
        )
        workspace = self.scratch((self._cublaslt.workspace(problem),), torch.uint8)
        addresses = (x.data_ptr(), w.data_ptr(), _address(bias), _address(add), out.data_ptr(), workspace.data_ptr())
        choice = self._cublaslt.run(problem, *addresses, self.cuda.stream)
        if self.cuda.record is not None:
            self.cuda.record.append(f"cublaslt {problem} {choice}")
        if act is not None and fused is None:
            kernel = "activate_bf16" if out.dtype == torch.bfloat16 else "activate_f32"
            arguments = (out, m, _stride(out), _ACTIVATIONS[act])
            self.cuda.launch("plain_linear", kernel, n, _ACTIVATION_THREADS, *arguments)

    def _any_rows(
        self,
        types: str,
        x: Tensor,
        w: Tensor,
        out: Tensor,
        bias: Tensor | None,
        act: Activation | None,
        add: Tensor | None,
        rows: Tensor | None,
    ) -> None:
        (n, k), m = x.shape, w.shape[0]
        strides = (x.stride(0), 0 if add is None else add.stride(0), out.stride(0))
        arguments = (x, w, bias, add, out, rows, n, m, k, *strides, _ACTIVATIONS[act])
        grid = (-(-m // _TILE), -(-n // _TILE))
        self.cuda.launch("plain_linear", f"plain_linear_{types}", grid, _PLAIN_THREADS, *arguments)


def _check(x: Tensor, w: Tensor, out: Tensor, bias: Tensor | None, add: Tensor | None) -> str:
    """The letters of the types of x, w and out; raises TypeError for what no kernel takes."""
    types = "".join(_LETTERS.get(part.dtype, "?") for part in (x, w, out))
    agree = (bias is None or bias.dtype == w.dtype) and (add is None or add.dtype == out.dtype)
    if types not in _PLAIN or not agree:
        given = {"x": x, "w": w, "out": out, "bias": bias, "add": add}
        found = ", ".join(f"{name} {part.dtype}" for name, part in given.items() if part is not None)
        raise TypeError(f"linear: no kernel for {found}")
    if not w.is_contiguous() or any(part is not None and part.stride(-1) != 1 for part in (x, out, bias, add)):
        raise TypeError("linear: w must be contiguous, and the last dimension of x, out, bias and add")
    return types


def _aligned(*parts: Tensor | None) -> bool:
    """Whether all rows begin at multiples of 16 bytes and are as long as a multiple of them."""
    for part in parts:
        if part is not None:
            size = part.dtype.itemsize
            if part.data_ptr() % ALIGNMENT or _stride(part) * size % ALIGNMENT or part.shape[1] * size % ALIGNMENT:
                return False
    return True


def _stride(x: Tensor) -> int:
    return x.stride(0) if x.shape[0] > 1 else x.shape[1]


def _address(x: Tensor | None) -> int:
    return 0 if x is None else x.data_ptr()


def _tiles(n: int) -> int:
    """Tiles of 8 rows that a kernel of kernels/few_rows_linear.cu is compiled for."""
    return 1 if n <= 8 else 2
