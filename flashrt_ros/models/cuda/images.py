# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From camera bytes to the rows of a vision tower."""

from __future__ import annotations

import torch
from torch import Tensor

from flashrt_ros.models.cuda.base import CudaBase
from flashrt_ros.models.cuda.layout import ceil_div, expect, threads_for, type_name, variant

_THREADS = 256
"""At most, for a patch."""


class CudaImages(CudaBase):
    """The operations of `Images`."""

    def patches(self, images: Tensor, patch: int, merge: int, out: Tensor) -> None:
        """See Images.patches; float32 inside, rounded once."""
        expect("patches", torch.uint8, images=images)
        _, height, width, channels = images.shape
        frames = out.shape[1] // (channels * patch * patch)
        kernel, count = variant(f"patches_{type_name('patches', out)}", out.element_size(), (out,), patch)
        threads = threads_for(ceil_div(channels * patch * patch, count), _THREADS)
        arguments = (images, out, height, width, channels, patch, merge, frames, out.stride(0))
        self.cuda.launch("images", kernel, out.shape[0], threads, *arguments)
