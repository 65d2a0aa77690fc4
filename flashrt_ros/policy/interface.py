# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the numbers of a command are, and what follows for the first one, their bounds, and rest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.policy.braking import Braking, PositionBraking, SpeedBraking
from flashrt_ros.policy.contract_action import Action
from flashrt_ros.policy.limits import Saturation, SpeedSaturation
from flashrt_ros.policy.plausibility import SPEED_FACTOR


class PositionInterface:
    """A command is where the joints shall be, rad or m, in the contract's order."""

    saturation: Saturation
    """Bounds commands."""
    braking: Braking | None
    """Brings the joints to rest over several ticks; None: they rest within one."""
    slack: tuple[float, ...]
    """Rad or m by which each measured joint may be off."""
    is_velocity = False

    def __init__(self, action: Action) -> None:
        self._action = action
        limits = action.limits
        self.saturation = Saturation(action.joints, limits)
        self.braking = None
        if limits.acceleration is not None:
            self.braking = PositionBraking(self.saturation, limits.acceleration)
        self.slack = action.start_tolerance

    def begin(self, measured: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the command that an arm at `measured` has got, as it were, before its first one."""
        return measured

    def refusal(self, measured: NDArray[np.float64], first: NDArray[np.float64]) -> str:
        """Say why an arm at `measured` must not start with the row `first`; empty: it may."""
        limited = self.saturation.within_position(measured)
        is_at = "is measured at"
        back = "move it back, or see that it is told in rad or m, as the limits are"
        nearer = "begin where the policy does, or see that the checkpoint's units are those of the contract (convert)"
        return self._too_far(measured, limited, "has its limit at", is_at, back) or self._too_far(
            measured, first, "would start at", is_at, nearer
        )

    def rest(self, commanded: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the command behind `commanded` that ends the motion within a tick: the same target again."""
        return commanded

    def still(self, measured: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
        """Return the command that stops an arm of which nothing else is known; None: there is none.

        It is where the joints are, outside their limits too: a hold is no travel.
        """
        return measured

    def _too_far(self, at: NDArray[np.float64], wanted: NDArray[np.float64], role: str, is_at: str, advice: str) -> str:
        """Say which joint is further from where it is wanted than the start tolerance; empty: none."""
        tolerance = self._action.start_tolerance
        excess = np.abs(wanted - at) - tolerance
        worst = int(np.argmax(excess))
        if excess[worst] <= 0.0:
            return ""
        return (
            f"joint '{self._action.joints[worst]}' {role} {wanted[worst]:.4f}, it {is_at} {at[worst]:.4f}, allowed is "
            f"{tolerance[worst]:g}; {advice}"
        )


class VelocityInterface(PositionInterface):
    """A command is how fast the joints shall move, rad/s or m/s, until the next one: zeros are rest."""

    is_velocity = True

    def __init__(self, action: Action) -> None:
        super().__init__(action)
        speeds = SpeedSaturation(action.joints, action.limits, action.rate)
        self.saturation = speeds
        self.braking = SpeedBraking(speeds) if self.braking is not None else None
        self.slack = (SPEED_FACTOR * max(action.limits.step),) * len(action.joints)
        self._zeros = np.zeros(len(action.joints))

    def begin(self, measured: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return zeros: it stands still."""
        return self._zeros

    def refusal(self, measured: NDArray[np.float64], first: NDArray[np.float64]) -> str:
        """Compare `first` with standing still."""
        advice = "see that the checkpoint's units are those of the contract (convert)"
        return self._too_far(self._zeros, first, "would start with", "stands still at", advice)

    def rest(self, commanded: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return zeros."""
        return self._zeros

    def still(self, measured: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
        """Return zeros."""
        return self._zeros


def interface_of(action: Action) -> PositionInterface:
    """Return the interface that a contract names."""
    return VelocityInterface(action) if action.interface == "velocity" else PositionInterface(action)
