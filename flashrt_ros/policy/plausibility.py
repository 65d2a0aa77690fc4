# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the arm can be where it is measured: a broken encoder gives finite numbers too, and so do degrees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.policy.contract_action import Limits

SPEED_FACTOR = 10.0
"""An arm that somebody pushes moves much faster than it is commanded to; one with a broken encoder, faster still."""


class Plausibility:
    """Compares measurements with the position limits, and each with the one before."""

    def __init__(self, joints: Sequence[str], limits: Limits, period: int, tolerance: Sequence[float]) -> None:
        """`period`: ns of a control tick; `tolerance`: rad or m by which a measurement of each joint may be off."""
        self._bounds = [
            (joint, low, high, off, SPEED_FACTOR * step / period)
            for joint, low, high, step, off in zip(joints, limits.low, limits.high, limits.step, tolerance, strict=True)
        ]
        self._before: list[float] | None = None
        self._stamp = 0

    def begin(self, positions: NDArray[np.float64], stamp: int) -> None:
        """Compare the next measurement with this one, whatever came before; arguments as `trouble`."""
        self._before, self._stamp = positions.tolist(), stamp

    def trouble(self, positions: NDArray[np.float64], stamp: int) -> str:
        """Return which joint cannot be where it is measured (`positions` [joints], at `stamp` ns); empty: none."""
        before, elapsed = self._before, stamp - self._stamp
        if before is not None and elapsed == 0:
            return ""
        # Numbers of Python: for as few as an arm has joints, numpy takes several times as long.
        now = positions.tolist()
        self._before, self._stamp = now, stamp
        if before is None or elapsed < 0:
            before, elapsed = now, 0
        for at, was, (joint, low, high, off, speed) in zip(now, before, self._bounds, strict=True):
            if not low - off <= at <= high + off:
                return (
                    f"joint '{joint}' is measured at {at:.4f}, further than {off:g} outside its limits "
                    f"[{low:g}, {high:g}]; see that it is told in rad or m, as the limits are"
                )
            if abs(at - was) > off + speed * elapsed:
                return (
                    f"joint '{joint}' is measured at {at:.4f}, {elapsed / 1e9:.3f} s after {was:.4f}; it cannot move "
                    f"more than {off + speed * elapsed:.4f} in that time"
                )
        return ""
