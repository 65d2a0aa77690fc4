# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the arm follows its commands: a controller that is not active, and a robot that was stopped, do not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Following:
    """Bounds by how much joints lag behind what they are commanded to.

    Commands are bounded by the command before, not by where the arm is: one that does not move would be commanded ever
    further away, and leap there when its controller becomes active.
    """

    def __init__(self, joints: Sequence[str], tolerance: Sequence[float] | None) -> None:
        """`tolerance`: rad or m of each joint, infinite for one that may lag; None: all may."""
        self._joints = tuple(joints)
        self._tolerance = None if tolerance is None else np.array(tolerance)

    def trouble(self, measured: NDArray[np.float64], commanded: NDArray[np.float64]) -> str:
        """Return which joint does not follow (both [joints], rad or m); empty: none."""
        if self._tolerance is None:
            return ""
        excess = np.abs(measured - commanded) - self._tolerance
        worst = int(excess.argmax())
        if excess[worst] <= 0.0:
            return ""
        return (
            f"joint '{self._joints[worst]}' is measured at {measured[worst]:.4f} and commanded to "
            f"{commanded[worst]:.4f}, {self._tolerance[worst]:g} is allowed: see that its controller is active "
            "and takes the contract's command topic, the robot is not stopped, and nothing is in its way"
        )

    def held(self, measured: NDArray[np.float64], commanded: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return where to hold an arm that does not follow: where it is, so that it leaps nowhere when it does again.

        Joints that may lag stay as commanded: a gripper that holds something goes on to hold it.
        """
        if self._tolerance is None:
            return commanded
        return np.where(np.isfinite(self._tolerance), measured, commanded)
