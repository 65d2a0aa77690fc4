# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""All operations on a GPU."""

from __future__ import annotations

from flashrt_ros.models.cuda.base import CudaBase
from flashrt_ros.models.ops import Ops


class CudaOps(CudaBase, Ops):
    """The operations as kernels; what varies between replays is read from buffers, as everywhere."""
