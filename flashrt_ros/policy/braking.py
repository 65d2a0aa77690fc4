# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How commanded joints come to rest: no faster than their acceleration limits allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.policy.limits import Saturation, SpeedSaturation


class Braking(Protocol):
    """The way from a command to one that lets the joints rest."""

    def rows(self, command: NDArray[np.float64], change: NDArray[np.float64], count: int) -> NDArray[np.float64]:
        """Return the next commands [rows, joints], `count` at most; the last one is rest, unless they are `count`.

        Args:
            command: the last one, [joints].
            change: by how much it differs from the one a tick before, [joints].
            count: at least 1.
        """
        ...

    def rests(self, command: NDArray[np.float64], change: NDArray[np.float64]) -> bool:
        """Return whether the joints rest behind a command."""
        ...


class PositionBraking:
    """Targets of constant deceleration, joint by joint, within the limits of position and step.

    A position limit goes first: at one, a joint stops whatever its acceleration limit says. At rest two targets are
    equal.
    """

    def __init__(self, saturation: Saturation, acceleration: Sequence[float]) -> None:
        """`acceleration`: by how much a joint's change in a tick may differ from the one before, rad or m."""
        self._saturation = saturation
        self._acceleration = np.array(acceleration)

    def rows(self, command: NDArray[np.float64], change: NDArray[np.float64], count: int) -> NDArray[np.float64]:
        """Return the next targets."""
        rows: list[NDArray[np.float64]] = []
        while len(rows) < count and not (rows and self.rests(command, change)):
            slower = np.sign(change) * np.maximum(np.abs(change) - self._acceleration, 0.0)
            row = self._saturation.bound(command + slower, command)
            command, change = row, row - command
            rows.append(row)
        return np.stack(rows)

    def rests(self, command: NDArray[np.float64], change: NDArray[np.float64]) -> bool:
        """Return whether a target is the one before."""
        return not change.any()


class SpeedBraking:
    """Speeds that fall to zero, joint by joint, as fast as their saturation allows."""

    def __init__(self, saturation: SpeedSaturation) -> None:
        self._saturation = saturation

    def rows(self, command: NDArray[np.float64], change: NDArray[np.float64], count: int) -> NDArray[np.float64]:
        """Return the next speeds."""
        rows: list[NDArray[np.float64]] = []
        while len(rows) < count and not (rows and self.rests(command, change)):
            command = self._saturation.bound(np.zeros_like(command), command)
            rows.append(command)
        return np.stack(rows)

    def rests(self, command: NDArray[np.float64], change: NDArray[np.float64]) -> bool:
        """Return whether a speed is zero."""
        return not command.any()
