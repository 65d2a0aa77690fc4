# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The token mixer of a linear-attention layer for few rows, in one launch."""

from __future__ import annotations

import torch
from torch import Tensor

from flashrt_ros.models.cuda.base import CudaBase
from flashrt_ros.models.cuda.layout import expect, rows_of, type_name
from flashrt_ros.models.reference.composites import Composites

_ROWS = (1, 2, 4, 8)
"""Rows that kernels are compiled for."""
_WIDTHS = (64, 128)
"""Of a head's keys and values, which are equally wide."""


class CudaDeltaMixer(CudaBase, Composites):
    """One kernel where it was built for the sizes, else the composite's body."""

    def delta_mixer(
        self,
        x: Tensor,
        w: Tensor,
        conv_state: Tensor,
        length: Tensor,
        b: Tensor,
        a: Tensor,
        a_log: Tensor,
        dt_bias: Tensor,
        z: Tensor,
        gain: Tensor,
        state: Tensor,
        out: Tensor,
        eps: float,
    ) -> None:
        """See Composites.delta_mixer; with few rows those of `out` from `length` on stay."""
        op, n, (heads, k_width, width) = "delta_mixer", x.shape[0], state.shape
        alike = k_width == width and x.shape[1] == 3 * heads * width
        if n > _ROWS[-1] or width not in _WIDTHS or not alike:
            super().delta_mixer(x, w, conv_state, length, b, a, a_log, dt_bias, z, gain, state, out, eps)
            return
        expect(op, x.dtype, w=w, conv_state=conv_state, gain=gain, out=out, z=z[0])
        expect(op, torch.float32, a_log=a_log, dt_bias=dt_bias, state=state)
        expect(op, torch.int64, length=length)
        strides = [rows_of(op, part)[1] for part in (x, b, a)]
        if strides[1] != strides[2]:
            raise TypeError(f"{op}: rows of b are {strides[1]} elements apart, those of a {strides[2]}")
        kernel = f"{op}_{type_name(op, x, b, a)}_{width}_{next(rows for rows in _ROWS if rows >= n)}"
        tensors = (x, w, conv_state, length, b, a, a_log, dt_bias, z, gain, state, out)
        self.cuda.launch("delta_mixer", kernel, heads, 4 * width, *tensors, n, *strides[:2], z.stride(0), eps)
