# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What every group of kernels needs: a launcher, and scratch memory."""

from __future__ import annotations

import torch
from torch import Tensor

from flashrt_ros.runtime.cuda.arena import Arena
from flashrt_ros.runtime.cuda.launcher import KernelLauncher


class CudaBase:
    """Launches kernels. `arena` is where scratch memory comes from, set by whoever runs a stage."""

    arena: Arena

    def __init__(self, cuda: KernelLauncher) -> None:
        self.cuda = cuda

    def scratch(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Memory with unspecified content, given back when the last view of it is dropped."""
        return self.arena.take(shape, dtype)
