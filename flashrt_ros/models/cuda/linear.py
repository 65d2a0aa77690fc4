# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Products with weights: own kernels for few rows and for odd sizes, cuBLASLt for many rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from flashrt_ros.models.cuda.base import CudaBase
from flashrt_ros.models.cuda.layout import ceil_div
from flashrt_ros.models.reference.dense import Activation, Dense
from flashrt_ros.runtime.cuda.cublaslt import ALIGNMENT, CublasLt, Problem
from flashrt_ros.runtime.cuda.launcher import KernelLauncher

FEW_ROWS = 8
"""Up to here few_rows_linear.cu is the faster one."""

SOME_ROWS = 24
"""Up to here tiled_linear.cu is as fast as cuBLASLt or faster, by the sizes of a 2B model on an H200; from 49 rows on
cuBLASLt reads weights faster."""

ACTIVATIONS: dict[Activation | None, int] = {None: 0, "gelu": 1, "gelu_tanh": 2, "relu": 3, "silu": 4}
"""The numbers of kernels/linear.cuh."""

_LETTERS = {torch.float32: "f", torch.bfloat16: "b"}
_PLAIN = ("fff", "bbb", "bbf", "fbb", "fbf")
"""Types of x, w and out."""

_THREADS = 256
_PLAIN_TILE = 64
_FEW_HEIGHT, _FEW_SHARED, _FEW_GAINS, _FEW_NORMED = 16, 80 << 10, 8 << 10, 2048
"""Weight rows of a tile of kernels/few_rows_linear.cu; its shared memory; that of gains, and how many it holds."""

_TILED_HEIGHT, _TILED_WIDTH, _TILED_SHARED, _TILED_PIECE = 64, 64, 96 << 10, 32
_TILED_COUNTS = (2, 3, 8)
"""Tiles of 8 rows that kernels/tiled_linear.cu is compiled for."""

_CLUSTERS = (1, 2, 4, 6, 8)
_CLUSTER_PIECES = 12
"""A block of tiled_linear.cu takes that many pieces of k at least: below, adding up costs more than it saves."""


@dataclass(frozen=True, slots=True)
class _Call:
    """The arguments of a product."""

    x: Tensor
    w: Tensor
    out: Tensor
    bias: Tensor | None = None
    act: Activation | None = None
    add: Tensor | None = None
    rows: Tensor | None = None

    def types(self) -> str:
        """The letters of the types of x, w and out; raises TypeError for what no kernel takes."""
        found = "".join(_LETTERS.get(part.dtype, "?") for part in (self.x, self.w, self.out))
        agree = (self.bias is None or self.bias.dtype == self.w.dtype) and (
            self.add is None or self.add.dtype == self.out.dtype
        )
        given = {name: getattr(self, name) for name in ("x", "w", "out", "bias", "add")}
        tensors = {name: part for name, part in given.items() if part is not None}
        if found not in _PLAIN or not agree:
            told = ", ".join(f"{name} {part.dtype}" for name, part in tensors.items())
            raise TypeError(f"linear: no kernel is built for {told}")
        for name, part in tensors.items():
            if part.stride(-1) != 1 and part.shape[-1] > 1:
                raise TypeError(f"linear: features of {name} lie {part.stride(-1)} elements apart, not side by side")
        if not self.w.is_contiguous():
            raise TypeError(f"linear: w of shape {tuple(self.w.shape)} is not contiguous")
        return found

    def arguments(self) -> tuple[Tensor | int | None, ...]:
        """What the kernels for all forms take."""
        n, k = self.x.shape
        strides = (_stride(self.x), 0 if self.add is None else _stride(self.add), _stride(self.out))
        operands = (self.x, self.w, self.bias, self.add, self.out, self.rows)
        return (*operands, n, self.w.shape[0], k, *strides, ACTIVATIONS[self.act])


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
        """See Dense.linear: the sum, the activation and `add` in float32, rounded once where a kernel of ours does."""
        call = _Call(x, w, out, bias, act, add, rows)
        types = call.types()
        if types in ("fbb", "fbf") and _aligned(x, w) and x.shape[0] > FEW_ROWS:
            types, call = "bb" + types[2], _Call(self._rounded(x, rows), w, out, bias, act, add, rows)
        own, n = types in ("bbb", "bbf") and _aligned(call.x, w), x.shape[0]
        if own and n <= FEW_ROWS:
            self._few_rows(call)
        elif own and (n <= SOME_ROWS or rows is not None):
            self._tiled(call)
        elif types in ("bbb", "fff") and _fits_cublaslt(call):
            self._many_rows(call)
        else:
            grid = (ceil_div(w.shape[0], _PLAIN_TILE), ceil_div(n, _PLAIN_TILE))
            self.cuda.launch("plain_linear", f"plain_linear_{types}", grid, _THREADS, *call.arguments())

    def norm_linear(self, x: Tensor, gain: Tensor, w: Tensor, out: Tensor, eps: float) -> None:
        """See Dense.norm_linear: for few rows 1 / rms(x) scales the finished sum."""
        if x.shape[0] <= FEW_ROWS and x.shape[1] <= _FEW_NORMED and _normed(x, gain, w, out):
            self._few_rows_normed("norm", x, gain, w, out, eps)
        else:
            Dense.norm_linear(self, x, gain, w, out, eps)  # type: ignore[arg-type]

    def norm_gated_linear(self, x: Tensor, gain: Tensor, w: Tensor, out: Tensor, eps: float) -> None:
        """See Dense.norm_gated_linear: one kernel for few rows, two for some."""
        if x.shape[0] <= FEW_ROWS and x.shape[1] <= _FEW_NORMED and _normed(x, gain, w, out):
            self._few_rows_normed("gated", x, gain, w, out, eps)
        elif x.shape[0] <= SOME_ROWS and _normed(x, gain, w, out):
            h = self.scratch(tuple(x.shape), x.dtype)
            self.norm(x, gain, h, eps)  # type: ignore[attr-defined]
            self._tiled_gated(h, w, out)
        else:
            Dense.norm_gated_linear(self, x, gain, w, out, eps)  # type: ignore[arg-type]

    def linear_numerics(self) -> Mapping[str, str]:
        """What decides the bytes of products, apart from the kernels that are launched."""
        return self._cublaslt.describe()

    def _few_rows(self, call: _Call) -> None:
        kernel = f"few_rows_linear_{_suffix(call.out)}"
        grid = self._few_grid(call.w.shape[0], _FEW_HEIGHT)
        arguments = call.arguments()
        self.cuda.launch("few_rows_linear", kernel, grid, _THREADS, *arguments, shared=_FEW_SHARED)

    def _few_rows_normed(self, kind: str, x: Tensor, gain: Tensor, w: Tensor, out: Tensor, eps: float) -> None:
        (n, k), m = x.shape, out.shape[1]
        arguments = (x, gain, w, out, n, m, k, _stride(x), _stride(out), eps)
        grid = self._few_grid(m, _FEW_HEIGHT // 2 if kind == "gated" else _FEW_HEIGHT)
        shared = _FEW_SHARED + _FEW_GAINS
        self.cuda.launch("few_rows_linear", f"few_rows_{kind}", grid, _THREADS, *arguments, shared=shared)

    def _few_grid(self, m: int, height: int) -> int:
        """One block a multiprocessor or two: two read faster, unless one then gets more of the tiles than before."""
        tiles, count = ceil_div(m, height), self.cuda.multiprocessors
        return min(tiles, count if ceil_div(tiles, count) < 2 * ceil_div(tiles, 2 * count) else 2 * count)

    def _tiled(self, call: _Call) -> None:
        kernel = f"tiled_linear_{_suffix(call.out)}_{_tiles(call.x.shape[0])}"
        self._launch_tiled(kernel, call.x, call.w, call.arguments())

    def _tiled_gated(self, x: Tensor, w: Tensor, out: Tensor) -> None:
        arguments = (x, w, out, x.shape[0], out.shape[1], x.shape[1], _stride(x), _stride(out))
        self._launch_tiled(f"tiled_gated_{_tiles(x.shape[0])}", x, w, arguments)

    def _launch_tiled(self, kernel: str, x: Tensor, w: Tensor, arguments: tuple[Tensor | int | None, ...]) -> None:
        cluster = 1
        if self.cuda.capability >= (9, 0):
            cluster = cluster_size(w.shape[0], x.shape[1], self.cuda.multiprocessors)
        grid = (ceil_div(w.shape[0], _TILED_HEIGHT) * cluster, ceil_div(x.shape[0], _TILED_WIDTH))
        options = {"shared": _TILED_SHARED, "cluster": cluster}
        self.cuda.launch("tiled_linear", kernel, grid, _THREADS, *arguments, cluster, **options)

    def _many_rows(self, call: _Call) -> None:
        (n, k), m, out = call.x.shape, call.w.shape[0], call.out
        fused = call.act if call.act in ("relu", "gelu_tanh") else None
        problem = Problem(
            dtype="bf16" if call.w.dtype == torch.bfloat16 else "f32",
            n=n,
            m=m,
            k=k,
            ldx=_stride(call.x),
            ldout=_stride(out),
            ldadd=0 if call.add is None else _stride(call.add),
            bias=call.bias is not None,
            function=fused or "none",
        )
        workspace = self.scratch((self._cublaslt.workspace(problem),), torch.uint8)
        tensors = (call.x, call.w, call.bias, call.add, out, workspace)
        x, w, bias, add, written, spare = (0 if tensor is None else tensor.data_ptr() for tensor in tensors)
        choice = self._cublaslt.run(problem, x, w, bias, add, written, spare, self.cuda.stream)
        if self.cuda.record is not None:
            self.cuda.record.append(f"cublaslt {problem} {choice}")
        if call.act is not None and fused is None:
            arguments = (out, m, _stride(out), ACTIVATIONS[call.act])
            self.cuda.launch("plain_linear", f"activate_{_suffix(out)}", n, _THREADS, *arguments)

    def _rounded(self, x: Tensor, rows: Tensor | None) -> Tensor:
        out = self.scratch(tuple(x.shape), torch.bfloat16)
        self.cuda.launch("plain_linear", "round_rows", x.shape[0], _THREADS, x, out, rows, *x.shape, _stride(x))
        return out


def cluster_size(m: int, k: int, multiprocessors: int) -> int:
    """How many blocks of kernels/tiled_linear.cu share out k, for m weight rows of k columns.

    As many as a GPU holds at once, two a multiprocessor; with more than two to a cluster three for two
    multiprocessors, which measures faster than a full house.
    """
    tiles, most = ceil_div(m, _TILED_HEIGHT), ceil_div(k, _TILED_PIECE * _CLUSTER_PIECES)

    def fits(cluster: int) -> bool:
        room = 2 * multiprocessors if cluster == 2 else multiprocessors * 3 // 2
        return cluster <= most and tiles * cluster <= room

    return max((cluster for cluster in _CLUSTERS if fits(cluster)), default=1)


def _normed(x: Tensor, gain: Tensor, w: Tensor, out: Tensor) -> bool:
    return _Call(x, w, out).types() == "bbb" and _aligned(x, w, gain.unsqueeze(0)) and gain.dtype == torch.float32


def _fits_cublaslt(call: _Call) -> bool:
    """Whether its epilogues express this call, and all is aligned as the algorithms are chosen for."""
    both = call.act is not None and call.add is not None
    return call.rows is None and not both and _aligned(call.x, call.w, call.out, call.add)


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


def _suffix(out: Tensor) -> str:
    return "bf16" if out.dtype == torch.bfloat16 else "f32"


def _tiles(n: int) -> int:
    wanted = ceil_div(min(n, _TILED_WIDTH), 8)
    return next(count for count in _TILED_COUNTS if count >= wanted)
