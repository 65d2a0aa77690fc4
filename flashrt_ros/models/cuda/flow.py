# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Transformers that denoise actions behind a prefix: kernels/attend_rows.cu, rope_cache.cu and flow.cu."""

from __future__ import annotations

import torch
from torch import Tensor

from flashrt_ros.models.cuda.base import CudaBase
from flashrt_ros.models.cuda.layout import ceil_div, expect, rows_of, threads_for, type_name, variant

_THREADS = 256
_WIDTHS = (64, 128, 256)
"""Head sizes that there are bfloat16 kernels for; others are padded to the next."""


class CudaFlow(CudaBase):
    """The operations of `Flow`."""

    def attend_rows(self, q: Tensor, keys: Tensor, values: Tensor, end: Tensor, out: Tensor) -> None:
        """See Flow.attend_rows. The keys are split over blocks until there is one for each multiprocessor."""
        op, (n, heads, width), kv_heads = "attend_rows", q.shape, keys.shape[1]
        expect(op, torch.int64, end=end)
        expect(op, q.dtype, q=q, keys=keys, values=values, out=out)
        if q.dtype == torch.float32:
            arguments = (q, keys, values, end, out, heads, kv_heads, width)
            self.cuda.launch(op, "attend_rows_f32", (n, heads), _THREADS, *arguments)
            return
        padded = next((known for known in _WIDTHS if width <= known), 0)
        if q.dtype != torch.bfloat16 or width % 8 or not padded:
            raise TypeError(f"{op}: heads of {width} features of {q.dtype}; give a multiple of 8 up to {_WIDTHS[-1]}")
        packed = n * heads // kv_heads
        tiles, step = ceil_div(packed, 64), 32 if padded > 128 else 64
        parts = max(1, min(self.cuda.multiprocessors // (tiles * kv_heads), ceil_div(keys.shape[0], step)))
        sums = stats = None
        if parts > 1:
            sums = self.scratch((kv_heads * packed * parts, width), torch.float32)
            stats = self.scratch((kv_heads * packed * parts, 2), torch.float32)
        sizes = (n, heads, kv_heads, width)
        self.cuda.launch(
            op,
            f"attend_rows_bf16_d{padded}",
            (tiles, kv_heads, parts),
            128,
            *(q, keys, values, end, out, sums, stats),
            *sizes,
            shared=(4 * step + 64) * (padded + 8) * 2,
        )
        if parts > 1:
            grid = (packed, kv_heads)
            self.cuda.launch(op, "attend_rows_combine", grid, ceil_div(width, 4), sums, stats, out, *sizes, parts)

    def rope_cache(
        self,
        qkv: Tensor,
        cos: Tensor,
        sin: Tensor,
        start: Tensor,
        q_out: Tensor | None,
        keys: Tensor,
        values: Tensor,
        length: Tensor | None = None,
    ) -> None:
        """See Flow.rope_cache."""
        op, (n, _, width), kv_heads = "rope_cache", qkv.shape, keys.shape[1]
        heads = 0 if q_out is None else q_out.shape[1]
        expect(op, torch.int64, start=start, **({} if length is None else {"length": length}))
        expect(op, torch.float32, cos=cos, sin=sin)
        turned = {} if q_out is None else {"q_out": q_out}
        expect(op, qkv.dtype, qkv=qkv, keys=keys, values=values, **turned)
        tensors = (qkv, cos, sin, keys, values, *turned.values())
        kernel, count = variant(f"{op}_{type_name(op, qkv)}", qkv.element_size(), tensors, width // 2)
        grid = ceil_div(n * (heads + 2 * kv_heads) * width // count, _THREADS)
        arguments = (qkv, cos, sin, start, length, q_out, keys, values, n, heads, kv_heads, width)
        self.cuda.launch(op, kernel, grid, _THREADS, *arguments)

    def gelu_product(self, x: Tensor, out: Tensor) -> None:
        """See Flow.gelu_product."""
        width = out.shape[-1]
        (rows, x_stride), (_, out_stride) = rows_of("gelu_product", x), rows_of("gelu_product", out)
        name = type_name("gelu_product", x, out)
        kernel, count = variant(f"gelu_product_{name}", x.element_size(), (x, out), width)
        threads = threads_for(ceil_div(width, count), _THREADS)
        grid = (ceil_div(width, threads * count), rows)
        self.cuda.launch("flow", kernel, grid, threads, x, out, width, x_stride, out_stride)

    def modulated_norm(self, x: Tensor, table: Tensor, step: Tensor, out: Tensor, eps: float) -> None:
        """See Flow.modulated_norm."""
        kernel, count, width = self._modulated("modulated_norm", x, table, step, out)
        threads = threads_for(ceil_div(width, count), _THREADS)
        self.cuda.launch("flow", kernel, x.shape[0], threads, x, table, step, out, width, eps)

    def gated_add(self, y: Tensor, table: Tensor, step: Tensor, x: Tensor) -> None:
        """See Flow.gated_add."""
        kernel, count, width = self._modulated("gated_add", y, table, step, x)
        threads = threads_for(ceil_div(width, count), _THREADS)
        grid = (ceil_div(width, threads * count), x.shape[0])
        self.cuda.launch("flow", kernel, grid, threads, y, table, step, x, width)

    def _modulated(self, op: str, x: Tensor, table: Tensor, step: Tensor, out: Tensor) -> tuple[str, int, int]:
        """The kernel, the elements that a thread takes at once, and the width."""
        expect(op, torch.int64, step=step)
        expect(op, torch.float32, table=table)
        expect(op, x.dtype, x=x, out=out)
        kernel, count = variant(f"{op}_{type_name(op, x)}", x.element_size(), (x, table, out), x.shape[-1])
        return kernel, count, x.shape[-1]

    def guide(self, x: Tensor, target: Tensor, weight: Tensor, table: Tensor, step: Tensor, velocity: Tensor) -> None:
        """See Flow.guide."""
        expect("guide", torch.float32, x=x, target=target, weight=weight, table=table, velocity=velocity)
        expect("guide", torch.int64, step=step)
        arguments = (x, target, weight, table, step, velocity, *x.shape)
        self.cuda.launch("flow", "guide", ceil_div(x.numel(), _THREADS), _THREADS, *arguments)
