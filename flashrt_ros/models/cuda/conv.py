# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What feeds the gated delta rule."""

from __future__ import annotations

import torch
from torch import Tensor

from flashrt_ros.models.cuda.base import CudaBase
from flashrt_ros.models.cuda.layout import ceil_div, expect, fits, rows_of, type_name

_TAPS = 4
_THREADS = 64
_FEW_ROWS = 64
_FEW, _MANY = (2, 4), (4, 16)
"""Channels of a thread and rows of a block: little work for each where there are few rows, and where there are many
few inputs that neighbouring tiles both read."""


class CudaConv(CudaBase):
    """The convolution and the gates of `DeltaRule`."""

    def causal_conv(self, x: Tensor, w: Tensor, state: Tensor, length: Tensor, out: Tensor) -> None:
        """See DeltaRule.causal_conv; w has 4 taps, and rows of `out` from `length` on are unspecified."""
        kernel, (columns, rows), arguments = self._conv("causal_conv", x, w, state, length, out)
        self.cuda.launch("conv", kernel, (columns, rows), _THREADS, *arguments)

    def offer_conv(self, x: Tensor, w: Tensor, state: Tensor, out: Tensor) -> None:
        """See Decoding.offer_conv."""
        kernel, grid, arguments = self._conv("causal_conv", x, w, state, None, out)
        self.cuda.launch("conv", kernel, grid, _THREADS, *arguments)

    def keep_conv(self, x: Tensor, state: Tensor, accepted: Tensor) -> None:
        """See Decoding.keep_conv."""
        op, channels = "keep_conv", x.shape[1]
        expect(op, x.dtype, state=state)
        expect(op, torch.int64, accepted=accepted)
        if state.shape[0] != _TAPS - 1:
            raise TypeError(f"{op}: state has {state.shape[0]} rows; the kernel takes {_TAPS - 1}")
        count = _channels_at_once(_FEW[0], channels, x, state)
        kernel = f"{op}_{type_name(op, x)}_{count}"
        grid = ceil_div(channels, count * _THREADS)
        self.cuda.launch("conv", kernel, grid, _THREADS, x, state, accepted, channels, rows_of(op, x)[1])

    def delta_gates(self, b: Tensor, a: Tensor, a_log: Tensor, dt_bias: Tensor, beta: Tensor, g: Tensor) -> None:
        """See DeltaRule.delta_gates."""
        arguments = _gates("delta_gates", b, a, a_log, dt_bias, beta, g)
        n, heads = b.shape
        tile = max(1, _THREADS // heads)
        kernel = f"delta_gates_{type_name('delta_gates', b)}"
        self.cuda.launch("conv", kernel, ceil_div(n, tile), _THREADS, *arguments, n, tile)

    def conv_gates(
        self,
        x: Tensor,
        w: Tensor,
        state: Tensor,
        length: Tensor,
        out: Tensor,
        b: Tensor,
        a: Tensor,
        a_log: Tensor,
        dt_bias: Tensor,
        beta: Tensor,
        g: Tensor,
    ) -> None:
        """See Composites.conv_gates; one more column of blocks computes the gates."""
        kernel, (columns, rows), conv = self._conv("conv_gates", x, w, state, length, out)
        gates = _gates("conv_gates", b, a, a_log, dt_bias, beta, g)
        self.cuda.launch("conv", kernel, (columns + 1, rows), _THREADS, *conv, *gates)

    def _conv(
        self, op: str, x: Tensor, w: Tensor, state: Tensor, length: Tensor | None, out: Tensor
    ) -> tuple[str, tuple[int, int], tuple[Tensor | int | None, ...]]:
        """Kernel, grid and arguments of the convolution; without a length the state stays."""
        if w.shape[0] != _TAPS:
            raise TypeError(f"{op}: w has {w.shape[0]} taps; the kernel takes {_TAPS}")
        expect(op, x.dtype, w=w, state=state)
        if length is not None:
            expect(op, torch.int64, length=length)
        (n, x_stride), (_, out_stride), channels = rows_of(op, x), rows_of(op, out), x.shape[1]
        count, tile = _FEW if n <= _FEW_ROWS else _MANY
        count = _channels_at_once(count, channels, x, w, state, out)
        kernel = f"{op}_{type_name(op, x, out)}_{count}"
        grid = (ceil_div(channels, count * _THREADS), ceil_div(n, tile))
        return kernel, grid, (x, w, state, length, out, n, channels, x_stride, out_stride, tile)


def _channels_at_once(wished: int, channels: int, *tensors: Tensor) -> int:
    size = tensors[0].element_size()
    return wished if fits(wished * size, size, tensors, channels) else 1


def _gates(
    op: str, b: Tensor, a: Tensor, a_log: Tensor, dt_bias: Tensor, beta: Tensor, g: Tensor
) -> tuple[Tensor | int, ...]:
    expect(op, torch.float32, a_log=a_log, dt_bias=dt_bias, beta=beta, g=g)
    type_name(op, b, a)
    (_, stride), (_, a_stride) = rows_of(op, b), rows_of(op, a)
    if stride != a_stride:
        raise TypeError(f"{op}: rows of b are {stride} elements apart, those of a {a_stride}")
    return b, a, a_log, dt_bias, beta, g, b.shape[-1], stride
