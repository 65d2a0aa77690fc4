# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the arm can be where it is measured: a broken encoder gives finite numbers too, and so do degrees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.policy.contract_action import Limits

_SPEED_FACTOR = 3.0
"""An arm that is pushed, or catches up, moves faster than it is commanded to, but not by far."""


class Plausibility:
    """Compares measurements with the position limits, and each with the one before."""

    def __init__(self, joints: Sequence[str], limits: Limits, period: int, tolerance: float) -> None:
        """`period`: ns of a control tick; `tolerance`: rad or m by which a measurement may be off."""
        self._joints = tuple(joints)
        self._tolerance = tolerance
        self._low = np.array(limits.low) - tolerance
        self._high = np.array(limits.high) + tolerance
        self._speed = _SPEED_FACTOR * np.array(limits.step) / period
        self._before: NDArray[np.float64] | None = None
        self._stamp = 0

    def restart(self) -> None:
        """Compare the next measurement with none before."""
        self._before = None

    def trouble(self, positions: NDArray[np.float64], stamp: int) -> str:
        """Return which joint cannot be where it is measured (`positions` [joints], at `stamp` ns); empty: none."""
        before, elapsed = self._before, stamp - self._stamp
        if before is not None and elapsed == 0:
            return ""
        self._before, self._stamp = positions, stamp
        if (positions < self._low).any() or (positions > self._high).any():
            return self._out_of_range(positions)
        if before is None or elapsed < 0:
            return ""
        moved = np.abs(positions - before)
        possible = self._tolerance + self._speed * elapsed
        if (moved > possible).any():
            worst = int(np.argmax(moved - possible))
            return (
                f"joint '{self._joints[worst]}' is measured at {positions[worst]:.4f}, {elapsed / 1e9:.3f} s after "
                f"{before[worst]:.4f}; it cannot move more than {possible[worst]:.4f} in that time"
            )
        return ""

    def _out_of_range(self, positions: NDArray[np.float64]) -> str:
        worst = int(np.argmax(np.maximum(self._low - positions, positions - self._high)))
        low, high = self._low[worst] + self._tolerance, self._high[worst] - self._tolerance
        return (
            f"joint '{self._joints[worst]}' is measured at {positions[worst]:.4f}, further than {self._tolerance:g} "
            f"outside its limits [{low:g}, {high:g}]"
        )
