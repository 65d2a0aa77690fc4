# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Measured joints into the range that a policy was trained in, and its actions back out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from flashrt_ros.policy.statistics import Part, Statistics, Style
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.manifest import sha256

Convention = Literal["mean_std", "quantile", "min_max", "none"]

EPSILONS: dict[Style, float] = {"openpi": 1e-6, "lerobot": 1e-8}
_KEYS: dict[str, tuple[str, ...]] = {
    "mean_std": ("mean", "std"),
    "quantile": ("q01", "q99"),
    "min_max": ("min", "max"),
    "none": (),
}


@dataclass(frozen=True, eq=False, slots=True)
class Scaling:
    """One vector's statistics under one convention; `low` and `high` are mean and std, or the ends of a range.

    openpi: `(x - mean) / (std + 1e-6)`, and `(x - q01) / (q99 - q01 + 1e-6) * 2 - 1`; back by the same numbers.
    LeRobot: `(x - mean) / (std + 1e-8)`, back without the 1e-8; `2 * (x - low) / (high - low) - 1`, where 1e-8 stands
    for a range that is empty.
    """

    convention: Convention
    low: np.ndarray
    high: np.ndarray
    style: Style = "openpi"

    def normalise(self, x: np.ndarray) -> np.ndarray:
        """float64 [..., n] to the policy's range."""
        if self.convention == "none":
            return x
        if self.convention == "mean_std":
            return (x - self.low) / (self.high + EPSILONS[self.style])
        return (x - self.low) / self._span() * 2.0 - 1.0

    def unnormalise(self, x: np.ndarray) -> np.ndarray:
        """float64 [..., n] back from the policy's range."""
        if self.convention == "none":
            return x
        if self.convention == "mean_std":
            return x * (self.high + (EPSILONS["openpi"] if self.style == "openpi" else 0.0)) + self.low
        return (x + 1.0) / 2.0 * self._span() + self.low

    def _span(self) -> np.ndarray:
        span, epsilon = self.high - self.low, EPSILONS[self.style]
        return span + epsilon if self.style == "openpi" else np.where(span == 0, epsilon, span)


@dataclass(frozen=True, eq=False, slots=True)
class Normaliser:
    """The statistics of a checkpoint. `fingerprint` covers the convention and every number used."""

    convention: Convention
    state_scaling: Scaling
    action_scaling: Scaling
    fingerprint: str

    @classmethod
    def of(
        cls, statistics: Statistics, convention: str, state_names: Sequence[str], action_names: Sequence[str]
    ) -> Normaliser:
        """Take what a convention needs.

        Args:
            statistics: of the checkpoint; more numbers than names are padding, and left out.
            convention: "mean_std", "quantile" or "min_max"; "none" (raw values) only where the checkpoint says so.
            state_names: joints of the state, in the policy's order.
            action_names: joints of an action, in the policy's order.

        Raises:
            FlashrtError: BAD_CHECKPOINT if a statistic is absent, too short, not finite or impossible.
        """
        if convention not in _KEYS:
            message = f"normalisation {convention!r} of {statistics.path.parent}: use one of {', '.join(_KEYS)}"
            raise FlashrtError(ErrorCode.BAD_CHECKPOINT, message)
        kind: Convention = convention  # type: ignore[assignment]
        state = _scaling(statistics, "state", kind, len(state_names))
        actions = _scaling(statistics, "actions", kind, len(action_names))
        numbers = [array.tobytes() for part in (state, actions) for array in (part.low, part.high)]
        style = f"{kind} {EPSILONS[statistics.style]}"
        return cls(kind, state, actions, sha256(style.encode(), *numbers))

    def state(self, state: np.ndarray) -> np.ndarray:
        """Measured joints, float64 [state_dim], to the policy's range, float32."""
        return self.state_scaling.normalise(state).astype(np.float32)

    def unnormalise_actions(self, actions: np.ndarray) -> np.ndarray:
        """The policy's actions, float32 [horizon, action_dim], to the robot's units, float64."""
        return self.action_scaling.unnormalise(actions.astype(np.float64))


def _scaling(statistics: Statistics, part: Part, convention: Convention, length: int) -> Scaling:
    keys = _KEYS[convention]
    if not keys:
        return Scaling(convention, np.zeros(length), np.ones(length), statistics.style)
    low, high = (statistics.vector(part, key, length) for key in keys)
    impossible = high < (0.0 if convention == "mean_std" else low)
    if impossible.any():
        index = int(np.argmax(impossible))
        problem = f"{keys[1]} {high[index]} is {'negative' if convention == 'mean_std' else f'below {keys[0]}'}"
        message = f"{statistics.path}: {statistics.name(part)}[{index}]: {problem}"
        raise FlashrtError(ErrorCode.BAD_CHECKPOINT, message)
    return Scaling(convention, low, high, statistics.style)
