# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers between the robot's units and signs and the policy's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.policy.contract_keys import Conversion


def converted(numbers: NDArray[np.float64], conversions: Sequence[Conversion]) -> NDArray[np.float64]:
    """Return [..., n] of the robot in the policy's units; the very bytes where nothing is converted."""
    scales, offsets = _factors(conversions)
    return np.where((scales == 1.0) & (offsets == 0.0), numbers, numbers * scales + offsets)


def unconverted(numbers: NDArray[np.float64], conversions: Sequence[Conversion]) -> NDArray[np.float64]:
    """Return [..., n] of the policy in the robot's units; the inverse of `converted`."""
    scales, offsets = _factors(conversions)
    return (numbers - offsets) / scales


def _factors(conversions: Sequence[Conversion]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    scales = np.array([conversion.scale for conversion in conversions])
    return scales, np.array([conversion.offset for conversion in conversions])
