# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Choosing tokens, and counting those that hold."""

from __future__ import annotations

import torch
from torch import Tensor

from flashrt_ros.models.cuda.base import CudaBase
from flashrt_ros.models.cuda.layout import WARP, ceil_div, expect, rows_of, type_name, variant

_THREADS = 256
_PARTS = 64
"""At most, of a row that is searched."""


class CudaDecoding(CudaBase):
    """The operations of `Decoding` on integers; those on states are with the states' other kernels."""

    def argmax(self, x: Tensor, out: Tensor) -> None:
        """See Decoding.argmax: the best of each part of a row, then the best of those."""
        expect("argmax", torch.int64, out=out)
        (n, stride), m = rows_of("argmax", x), x.shape[-1]
        kernel, count = variant(f"argmax_{type_name('argmax', x)}", x.element_size(), (x,), m)
        parts = min(_PARTS, ceil_div(m, _THREADS * count))
        best = self.scratch((n, parts, 2), torch.int32)
        self.cuda.launch("argmax", kernel, (parts, n), _THREADS, x, best, m, stride)
        self.cuda.launch("argmax", "argmax_parts", n, WARP, best, out, parts)

    def accept(
        self, tokens: Tensor, chosen: Tensor, length: Tensor, stops: Tensor, accepted: Tensor, last: Tensor
    ) -> None:
        """See Decoding.accept; up to 32 rows."""
        tensors = {"tokens": tokens, "chosen": chosen, "length": length, "stops": stops}
        expect("accept", torch.int64, **tensors, accepted=accepted, last=last)
        n = tokens.numel()
        if n > WARP:
            raise ValueError(f"accept: {n} rows are offered; the kernel takes up to {WARP}")
        self.cuda.launch("accept", "accept", 1, WARP, *tensors.values(), accepted, last, n, stops.numel())
