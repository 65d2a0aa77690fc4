# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Saturation: no command leaves the position limits or exceeds the step limits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.policy.contract_action import Limits

_ROUNDING = 1e-9


class Saturation:
    """Bounds commands by position, and by the change from the command before; counts what it changed."""

    def __init__(self, joints: Sequence[str], limits: Limits) -> None:
        self._joints = tuple(joints)
        self._low = np.array(limits.low)
        self._high = np.array(limits.high)
        self._step = np.array(limits.step)
        self._saturated = np.zeros(len(self._joints), dtype=np.int64)

    @property
    def counts(self) -> dict[str, int]:
        """Rows that were changed, by joint; joints that never were are left out."""
        return {name: int(count) for name, count in zip(self._joints, self._saturated, strict=True) if count}

    def within_position(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return `positions` [joints] moved into the position limits; not counted."""
        return np.clip(positions, self._low, self._high)

    def apply(self, row: NDArray[np.float64], before: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return `row` [joints] within the position limits and one step of `before`, the command before.

        From a `before` outside the position limits, it goes a step towards them, or as far as the nearest limit is.
        """
        bounded = self._bound(row, before)
        self._saturated += np.abs(bounded - row) > _ROUNDING
        return bounded

    def path(self, rows: NDArray[np.float64], before: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return `rows` [rows, joints] bounded as they will be one behind the other; counted when they run."""
        bounded = np.clip(rows, self._low, self._high)
        if (np.abs(np.diff(bounded, axis=0, prepend=before[None])) > self._step).any():
            for index, row in enumerate(rows):
                before = bounded[index] = self._bound(row, before)
        return bounded

    def _bound(self, row: NDArray[np.float64], before: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.clip(np.clip(row, before - self._step, before + self._step), self._low, self._high)
