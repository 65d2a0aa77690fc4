# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Counter-based random numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from flashrt_ros.models.cuda.base import CudaBase
from flashrt_ros.models.cuda.layout import ceil_div, expect

_THREADS = 128


class CudaNoise(CudaBase):
    """The operations of `Philox`: integers are those of every other device, normals within its rounding."""

    def philox(self, counter: Tensor, key: Tensor, out: Tensor) -> None:
        """See Philox.philox."""
        expect("philox", torch.int64, counter=counter, key=key, out=out)
        n = counter.shape[1]
        self.cuda.launch("noise", "philox", ceil_div(n, _THREADS), _THREADS, counter, key, out, n)

    def normals(self, generator: Tensor, out: Tensor) -> None:
        """See Philox.normals."""
        expect("normals", torch.int64, generator=generator)
        expect("normals", torch.float32, out=out)
        n = out.numel()
        self.cuda.launch("noise", "normals", ceil_div(n, 4 * _THREADS), _THREADS, generator, out, n)
