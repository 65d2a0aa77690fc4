# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Rotary embeddings."""

from __future__ import annotations

import torch
from torch import Tensor

from flashrt_ros.models.cuda.base import CudaBase
from flashrt_ros.models.cuda.layout import ACCESS, WARP, ceil_div, expect, fits, heads_of, type_name, variant

_THREADS = 256
_WARPS = 4
_AT_ONCE = (8, 4)
"""Features of a thread: heads of some visual towers hold 72."""


class CudaRope(CudaBase):
    """The rotary half of `Attention`."""

    def rope_table(
        self,
        position: Tensor,
        rope_delta: Tensor,
        offsets: Tensor,
        frequency: Tensor,
        axis: Tensor,
        cos: Tensor,
        sin: Tensor,
    ) -> None:
        """See Attention.rope_table."""
        op, (n, half) = "rope_table", cos.shape
        expect(op, torch.int64, position=position, rope_delta=rope_delta, axis=axis, offsets=offsets[0])
        expect(op, torch.float32, frequency=frequency)
        expect(op, cos.dtype, cos=cos, sin=sin)
        kernel = f"{op}_{type_name(op, cos, sin)}"
        arguments = (position, rope_delta, offsets, frequency, axis, cos, sin, n, half, offsets.stride(0))
        self.cuda.launch("rope", kernel, ceil_div(n * half, _THREADS), _THREADS, *arguments)

    def rope(self, x: Tensor, cos: Tensor, sin: Tensor, out: Tensor) -> None:
        """See Attention.rope; x is [n, heads, d] or [batch, n, heads, d], the tables float32."""
        self._turn("rope", (x,), cos, sin, (out,))

    def rope_pair(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, q_out: Tensor, k_out: Tensor) -> None:
        """See Composites.rope_pair."""
        self._turn("rope_pair", (q, k), cos, sin, (q_out, k_out))

    def _turn(self, op: str, x: tuple[Tensor, ...], cos: Tensor, sin: Tensor, out: tuple[Tensor, ...]) -> None:
        """Turn one or two tensors that lie alike."""
        expect(op, torch.float32, cos=cos, sin=sin)
        first = x[0] if x[0].dim() == 4 else x[0].unsqueeze(0)
        batch, n, heads, width = first.shape
        half = cos.shape[-1]
        for given, turned in zip(x, out, strict=True):
            expect(op, given.dtype, out=turned)
            if given.stride() != x[0].stride() or given.shape != x[0].shape:
                raise TypeError(f"{op}: {given.shape}, {given.stride()} and {x[0].shape}, {x[0].stride()} lie unlike")
        size, tensors = first.element_size(), (*x, *out, cos, sin)
        wishes = [count for count in _AT_ONCE if count * size <= ACCESS]
        count = next((count for count in wishes if fits(count * size, size, tensors, width, half)), 1)
        kernel = f"rope_{type_name(op, *x, *out)}_{count}"
        grid = (ceil_div(n * heads * width // count, _THREADS), batch, len(x))
        sizes = (n, heads, width, half, *first.stride()[:3])
        self.cuda.launch("rope", kernel, grid, _THREADS, x[0], x[-1], cos, sin, out[0], out[-1], *sizes)

    def norm_rope(self, x: Tensor, gain: Tensor, cos: Tensor, sin: Tensor, out: Tensor, eps: float) -> None:
        """See Attention.norm_rope; the tables have the type of x."""
        op, (n, heads, width), half = "norm_rope", x.shape, cos.shape[-1]
        expect(op, torch.float32, gain=gain)
        expect(op, x.dtype, cos=cos, sin=sin, out=out)
        _, row, head = heads_of(op, x)
        kernel, _ = variant(f"{op}_{type_name(op, x)}", x.element_size(), (x, gain, cos, sin, out), width, half)
        arguments = (x, row, head, gain, cos, sin, out, n, heads, width, half, eps)
        self._launch_heads(kernel, n * heads, width, arguments)

    def rope_kv(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        q_gain: Tensor,
        k_gain: Tensor,
        cos: Tensor,
        sin: Tensor,
        position: Tensor,
        length: Tensor,
        q_out: Tensor,
        keys: Tensor,
        values: Tensor,
        eps: float,
    ) -> None:
        """See Composites.rope_kv."""
        op, (n, heads, width), kv_heads, half = "rope_kv", q.shape, k.shape[1], cos.shape[-1]
        expect(op, torch.float32, q_gain=q_gain, k_gain=k_gain)
        expect(op, torch.int64, position=position, length=length)
        expect(op, q.dtype, cos=cos, sin=sin, q_out=q_out, keys=keys, values=values)
        tensors = (q, k, v, q_gain, k_gain, cos, sin, q_out, keys, values)
        kernel, _ = variant(f"{op}_{type_name(op, q, k, v)}", q.element_size(), tensors, width, half)
        strided = [value for part in (q, k, v) for value in (part, *heads_of(op, part)[1:])]
        sizes = (n, heads, kv_heads, width, half, eps)
        arguments = (*strided, q_gain, k_gain, cos, sin, position, length, q_out, keys, values, *sizes)
        self._launch_heads(kernel, n * (heads + 2 * kv_heads), width, arguments)

    def _launch_heads(self, kernel: str, heads: int, width: int, arguments: tuple[Tensor | int | float, ...]) -> None:
        """One warp a head, which it keeps in shared memory as float32."""
        shared = _WARPS * width * torch.float32.itemsize
        self.cuda.launch("norm_rope", kernel, ceil_div(heads, _WARPS), _WARPS * WARP, *arguments, shared=shared)
