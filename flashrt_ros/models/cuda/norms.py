# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Norms."""

from __future__ import annotations

import torch
from torch import Tensor

from flashrt_ros.models.cuda.base import CudaBase
from flashrt_ros.models.cuda.layout import WARP, ceil_div, expect, heads_of, rows_of, threads_for, type_name, variant

_WIDEST = 8192
_WARPS = 4
_WIDEST_HEAD = 256


class CudaNorms(CudaBase):
    """Norms of `Dense`: float32 inside, rounded once."""

    def norm(self, x: Tensor, gain: Tensor, out: Tensor, eps: float) -> None:
        """See Dense.norm."""
        expect("norm", torch.float32, gain=gain)
        self._launch_norm("norm", x, out, (gain,), (), eps)

    def layer_norm(self, x: Tensor, gain: Tensor, bias: Tensor, out: Tensor, eps: float) -> None:
        """See Dense.layer_norm."""
        expect("layer_norm", x.dtype, gain=gain, bias=bias)
        self._launch_norm("layer_norm", x, out, (gain, bias), (), eps)

    def standardise(self, x: Tensor, out: Tensor, eps: float) -> None:
        """See Dense.standardise."""
        self._launch_norm("layer_norm", x, out, (None, None), (), eps)

    def ada_norm(self, x: Tensor, table: Tensor, step: Tensor, out: Tensor, eps: float) -> None:
        """See Composites.ada_norm; the rows of all steps are fetched before the step is known."""
        expect("ada_norm", torch.int64, step=step)
        expect("ada_norm", x.dtype, table=table[0])
        self._launch_norm("ada_norm", x, out, (table, step), (table.stride(0), table.shape[0]), eps)

    def _launch_norm(
        self, op: str, x: Tensor, out: Tensor, gains: tuple[Tensor | None, ...], strides: tuple[int, ...], eps: float
    ) -> None:
        """One block a row; `gains` and `strides` are the kernel's own arguments."""
        width = x.shape[-1]
        if width > _WIDEST:
            raise ValueError(f"{op}: rows have {width} features; the kernel takes up to {_WIDEST}")
        (rows, x_stride), (_, out_stride) = rows_of(op, x), rows_of(op, out)
        present = tuple(gain for gain in gains if gain is not None and gain.is_floating_point())
        kernel, count = variant(f"{op}_{type_name(op, x, out)}", x.element_size(), (x, out, *present), width)
        threads = threads_for(ceil_div(width, count))
        self.cuda.launch("norm", kernel, rows, threads, x, *gains, out, width, x_stride, *strides, out_stride, eps)

    def gated_norm(self, x: Tensor, gain: Tensor, z: Tensor, out: Tensor, eps: float) -> None:
        """See Dense.gated_norm."""
        name = type_name("gated_norm", x, gain, z, out)
        heads, width = x.shape[-2:]
        if width > _WIDEST_HEAD:
            raise ValueError(f"gated_norm: heads have {width} features; the kernel takes up to {_WIDEST_HEAD}")
        (rows, x_row, x_head), (_, z_row, z_head), (_, out_row, out_head) = (
            heads_of("gated_norm", part) for part in (x, z, out)
        )
        kernel, _ = variant(f"gated_norm_{name}", x.element_size(), (x, gain, z, out), width)
        strides = (x_row, x_head, z_row, z_head, out_row, out_head)
        grid = ceil_div(rows * heads, _WARPS)
        self.cuda.launch("gated_norm", kernel, grid, _WARPS * WARP, x, gain, z, out, rows, heads, width, *strides, eps)
