# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Saturation: no command leaves its limits."""

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

    def look(self, measured: NDArray[np.float64]) -> None:
        """Take where the joints are [joints], for bounds that depend on it."""

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
        bounded = self.bound(row, before)
        self._saturated += np.abs(bounded - row) > _ROUNDING
        return bounded

    def path(self, rows: NDArray[np.float64], before: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return `rows` [rows, joints] bounded as they will be one behind the other; counted when they run."""
        bounded = np.clip(rows, self._low, self._high)
        if (np.abs(np.diff(bounded, axis=0, prepend=before[None])) > self._step).any():
            for index, row in enumerate(rows):
                before = bounded[index] = self.bound(row, before)
        return bounded

    def bound(self, row: NDArray[np.float64], before: NDArray[np.float64]) -> NDArray[np.float64]:
        """Do as `apply`, uncounted."""
        return np.clip(np.clip(row, before - self._step, before + self._step), self._low, self._high)


class SpeedSaturation(Saturation):
    """Bounds commanded speeds: by velocity, by acceleration, and by the way that is left to the position limits.

    Towards a limit a joint is commanded no faster than lets it stop there, by its acceleration and with this tick's
    way; at a limit, only away from it. This goes before its acceleration.
    """

    def __init__(self, joints: Sequence[str], limits: Limits, rate: float) -> None:
        """`rate`: control ticks a second. Rows are rad/s or m/s."""
        speed = rate * np.array(limits.step)
        self._acceleration = None if limits.acceleration is None else rate**2 * np.array(limits.acceleration)
        change = np.full(len(speed), np.inf) if self._acceleration is None else self._acceleration / rate
        super().__init__(joints, Limits(tuple(-speed), tuple(speed), tuple(change)))
        self._rate = rate
        self._positions = np.array(limits.low), np.array(limits.high)
        self._room = -speed, speed

    def look(self, measured: NDArray[np.float64]) -> None:
        """Take how far it is to the position limits."""
        low, high = self._positions
        self._room = -self._fastest(measured - low), self._fastest(high - measured)

    def _fastest(self, way: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the speed v behind which the joint stops within `way`, for it slows down by a / rate a tick.

        The ways of its ticks make up an arithmetic series: v^2 / 2 a + v / 2 rate.
        """
        way = np.maximum(way, 0.0)
        fastest = self._rate * way
        if self._acceleration is None:
            return fastest
        half = self._acceleration / (2.0 * self._rate)
        return np.minimum(fastest, np.sqrt(half**2 + 2.0 * self._acceleration * way) - half)

    def bound(self, row: NDArray[np.float64], before: NDArray[np.float64]) -> NDArray[np.float64]:
        """Do as `apply`, uncounted."""
        return np.clip(super().bound(row, before), *self._room)
