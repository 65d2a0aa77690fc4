# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Matrices of 8-bit floating-point numbers with a scale for each row (output channel)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from flashrt_ros.models.reference.precision import wide

FP8 = torch.float8_e4m3fn
"""Four bits of exponent, three of mantissa, no infinity (Micikevicius et al., arXiv 2209.05433)."""

_LARGEST = torch.finfo(FP8).max


class Quantised(NamedTuple):
    """A matrix w [m, k] as values FP8 [m, k] and scale float32 [m]: w[i, j] = scale[i] * values[i, j]."""

    values: Tensor
    scale: Tensor

    @property
    def shape(self) -> torch.Size:
        """That of the matrix."""
        return self.values.shape


Matrix = Tensor | Quantised
"""What a product multiplies with."""


def last_rows(w: Matrix, count: int) -> Matrix:
    """The last `count` rows, in place."""
    if isinstance(w, Quantised):
        return Quantised(w.values[-count:], w.scale[-count:])
    return w[-count:]


def quantise(w: Tensor) -> Quantised:
    """Scale each row of w [m, k] so that its largest value is the largest of FP8, and round to the nearest."""
    w = w.float()
    scale = (w.abs().amax(dim=1) / _LARGEST).clamp_min(torch.finfo(torch.float32).tiny)
    return Quantised((w / scale[:, None]).to(FP8), scale)


def dequantised(w: Matrix) -> Tensor:
    """The values of a matrix, float32."""
    return wide(w.values) * w.scale[:, None] if isinstance(w, Quantised) else wide(w)
