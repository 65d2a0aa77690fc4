# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How commanded joints come to rest: no faster than their acceleration limits allow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.policy.limits import Saturation


class Braking:
    """Targets of constant deceleration, joint by joint, within the limits of position and step.

    A position limit goes first: at one, a joint stops whatever its acceleration limit says.
    """

    def __init__(self, saturation: Saturation, acceleration: Sequence[float]) -> None:
        """`acceleration`: by how much a joint's change in a tick may differ from the one before, rad or m."""
        self._saturation = saturation
        self._acceleration = np.array(acceleration)

    def rows(self, position: NDArray[np.float64], velocity: NDArray[np.float64], count: int) -> NDArray[np.float64]:
        """Return the next targets [rows, joints] of joints that are commanded to `position`, `count` at most.

        The last one repeats the one before, which is rest, unless they are `count`.

        Args:
            position: last target [joints], rad or m.
            velocity: by how much it differs from the target a tick before, [joints].
            count: at least 1.
        """
        rows: list[NDArray[np.float64]] = []
        while len(rows) < count and (not rows or velocity.any()):
            slower = np.sign(velocity) * np.maximum(np.abs(velocity) - self._acceleration, 0.0)
            row = self._saturation.path((position + slower)[None], position)[0]
            position, velocity = row, row - position
            rows.append(row)
        return np.stack(rows)
