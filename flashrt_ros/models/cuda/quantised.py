# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Products with weights of one byte, of up to 64 rows: kernels/fp8_linear.cu."""

from __future__ import annotations

import torch
from torch import Tensor

from flashrt_ros.models.cuda.flow import CudaFlow
from flashrt_ros.models.cuda.layout import ACCESS, ceil_div, expect, type_name
from flashrt_ros.models.reference.flow import Flow
from flashrt_ros.models.reference.quantised import FP8, Matrix, Quantised

_SOURCE = "fp8_linear"
_ROWS, _HEIGHT, _PIECE, _SHARED, _CLUSTER = 64, 64, 128, 98 << 10, 8
_THREADS, _BLOCKS = 256, 4
"""Of a block; blocks of dequantise for each multiprocessor."""


class CudaQuantisedFlow(CudaFlow):
    """The operations of `Flow` on any Matrix; other sizes and types of a quantised one are dequantised first."""

    def dequantise(self, w: Quantised, out: Tensor) -> None:
        """See Dense.dequantise."""
        op, (m, k) = "dequantise", w.shape
        expect(op, FP8, values=w.values)
        expect(op, torch.float32, scale=w.scale)
        if k % 4:
            raise TypeError(f"{op}: rows have {k} features; the kernel takes a multiple of 4")
        grid = min(ceil_div(m * k // 4, _THREADS), _BLOCKS * self.cuda.multiprocessors)
        self.cuda.launch(_SOURCE, f"{op}_{type_name(op, out)}", grid, _THREADS, w.values, w.scale, out, m, k)

    def normed_linear(
        self, x: Tensor, gain: Tensor, step: Tensor, w: Matrix, out: Tensor, eps: float, bias: Tensor | None = None
    ) -> None:
        """See Flow.normed_linear: one kernel for some rows."""
        if not isinstance(w, Quantised):
            super().normed_linear(x, gain, step, w, out, eps, bias)
        elif _fits(x, w, out):
            self._few("norm", x, gain, w, bias, None, step, out, eps)
        else:
            Flow.normed_linear(self, x, gain, step, w, out, eps, bias)  # type: ignore[arg-type]

    def normed_heads(
        self,
        x: Tensor,
        gain: Tensor,
        step: Tensor,
        w: Matrix,
        cos: Tensor,
        sin: Tensor,
        start: Tensor,
        q_out: Tensor | None,
        keys: Tensor,
        values: Tensor,
        eps: float,
        bias: Tensor | None = None,
        length: Tensor | None = None,
    ) -> None:
        """See Flow.normed_heads: one kernel for some rows."""
        op, (kv_heads, width), cache = "normed_heads", keys.shape[1:], (cos, sin, start, q_out, keys, values)
        if not isinstance(w, Quantised):
            super().normed_heads(x, gain, step, w, *cache, eps, bias, length)
        elif length is not None or width % _HEIGHT or not _fits(x, w, keys.flatten(1)):
            Flow.normed_heads(self, x, gain, step, w, *cache, eps, bias, length)  # type: ignore[arg-type]
        else:
            expect(op, torch.float32, cos=cos, sin=sin)
            expect(op, torch.int64, start=start)
            expect(op, x.dtype, keys=keys, values=values, **({} if q_out is None else {"q_out": q_out}))
            more = (cos, sin, start, keys, values, 0 if q_out is None else q_out.shape[1], kv_heads, width)
            self._few("heads", x, gain, w, bias, None, step, q_out, eps, more)

    def normed_gelu_linear(
        self, x: Tensor, gain: Tensor, step: Tensor, w: Matrix, out: Tensor, eps: float, bias: Tensor | None = None
    ) -> None:
        """See Flow.normed_gelu_linear: one kernel for some rows."""
        if not isinstance(w, Quantised):
            super().normed_gelu_linear(x, gain, step, w, out, eps, bias)
        elif _fits(x, w, out):
            self._few("gelu", x, gain, w, bias, None, step, out, eps)
        else:
            Flow.normed_gelu_linear(self, x, gain, step, w, out, eps, bias)  # type: ignore[arg-type]

    def linear_gated_add(self, x: Tensor, w: Matrix, step: Tensor, out: Tensor, gate: Tensor | None = None) -> None:
        """See Flow.linear_gated_add: one kernel for some rows."""
        if not isinstance(w, Quantised):
            super().linear_gated_add(x, w, step, out, gate)
        elif _fits(x, w, out):
            self._few("add", x, None, w, None, gate, step, out, 0.0)
        else:
            Flow.linear_gated_add(self, x, w, step, out, gate)  # type: ignore[arg-type]

    def _few(
        self,
        kind: str,
        x: Tensor,
        gain: Tensor | None,
        w: Quantised,
        bias: Tensor | None,
        gate: Tensor | None,
        step: Tensor,
        out: Tensor | None,
        eps: float,
        more: tuple[Tensor | int, ...] = (),
    ) -> None:
        op, tables = f"fp8_{kind}", {"gain": gain, "bias": bias, "gate": gate}
        given = {name: table for name, table in tables.items() if table is not None}
        expect(op, torch.float32, scale=w.scale, **given)
        expect(op, torch.int64, step=step)
        steps, groups = max((len(part) for part in given.values()), default=1), 2 if kind == "gelu" else 1
        (n, k), m = x.shape, w.shape[0] // groups
        tiles, cluster = ceil_div(w.shape[0], _HEIGHT), 1
        if self.cuda.capability >= (9, 0):
            cluster = cluster_size(tiles, k, self.cuda.multiprocessors)
        tensors = (x, gain, *w, bias, gate, step if steps > 1 else None, out)
        arguments = (*tensors, n, m, k, steps, eps, cluster, *more)
        options = {"shared": _SHARED, "cluster": cluster}
        self.cuda.launch(_SOURCE, op, tiles * cluster, _THREADS, *arguments, **options)


def cluster_size(tiles: int, k: int, multiprocessors: int) -> int:
    """How many blocks share out k columns: as many as there are multiprocessors for, two where that leaves room."""
    wanted = max(multiprocessors // tiles, min(2, 2 * multiprocessors // tiles))
    return max(1, min(_CLUSTER, wanted, ceil_div(k, _PIECE)))


def _fits(x: Tensor, w: Quantised, out: Tensor) -> bool:
    """Whether kernels/fp8_linear.cu takes these at once."""
    whole = all(part.is_contiguous() and part.data_ptr() % ACCESS == 0 for part in (x, *w, out))
    rounded = x.dtype == out.dtype == torch.bfloat16
    return whole and rounded and x.shape[0] <= _ROWS and x.shape[1] % 16 == 0 and out.shape[1] % 8 == 0
