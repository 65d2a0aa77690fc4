# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The precision that intermediate results are kept in."""

from __future__ import annotations

import torch
from torch import Tensor


def wide(x: Tensor) -> Tensor:
    """Keep x in float32; float64 stays, so that a reference can be computed in it."""
    return x if x.dtype == torch.float64 else x.float()
