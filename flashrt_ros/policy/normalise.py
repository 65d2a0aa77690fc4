# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Measured joints into the range that a policy was trained in, and its actions back out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from flashrt_ros.models.starvla_config import Scales
from flashrt_ros.policy.statistics import Part, Statistics, Style
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.manifest import sha256

Convention = Literal["mean_std", "quantile", "min_max", "none"]

EPSILONS: dict[Style, float] = {"openpi": 1e-6, "lerobot": 1e-8, "starvla": 0.0}
_FURTHEST = 2.2
"""How far StarVLA lets a number be that it scales by quantiles."""
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
    StarVLA: the same without an epsilon; where the range is empty x itself, of min_max 0; of quantile within 2.2
    (Normalizer in starVLA/starVLA at 0ed0aad, dataloader/gr00t_lerobot/transform/state_action.py).

    `raw` and `binary`, bool [n]: numbers that stay as they are, and those that are 0, or 1 above 0.5.
    """

    convention: Convention
    low: np.ndarray
    high: np.ndarray
    raw: np.ndarray
    binary: np.ndarray
    style: Style = "openpi"

    def normalise(self, x: np.ndarray) -> np.ndarray:
        """float64 [..., n] to the policy's range."""
        return self._with_exceptions(x, self._scale(x))

    def unnormalise(self, x: np.ndarray) -> np.ndarray:
        """float64 [..., n] back from the policy's range."""
        return self._with_exceptions(x, self._unscale(x))

    def _with_exceptions(self, x: np.ndarray, scaled: np.ndarray) -> np.ndarray:
        return np.where(self.binary, x > 0.5, np.where(self.raw, x, scaled))

    def _scale(self, x: np.ndarray) -> np.ndarray:
        if self.convention == "none":
            return x
        if self.style == "starvla":
            return self._scale_as_starvla(x)
        if self.convention == "mean_std":
            return (x - self.low) / (self.high + EPSILONS[self.style])
        return (x - self.low) / self._span() * 2.0 - 1.0

    def _scale_as_starvla(self, x: np.ndarray) -> np.ndarray:
        width = self.high if self.convention == "mean_std" else self.high - self.low
        still = width == 0
        scaled = (x - self.low) / np.where(still, 1.0, width)
        if self.convention == "mean_std":
            return np.where(still, x, scaled)
        scaled = scaled * 2.0 - 1.0
        if self.convention == "min_max":
            return np.where(still, 0.0, scaled)
        return np.clip(np.where(still, x, scaled), -_FURTHEST, _FURTHEST)

    def _unscale(self, x: np.ndarray) -> np.ndarray:
        if self.convention == "none":
            return x
        if self.convention == "mean_std":
            return x * (self.high + (EPSILONS["openpi"] if self.style == "openpi" else 0.0)) + self.low
        return (x + 1.0) / 2.0 * self._span() + self.low

    def _span(self) -> np.ndarray:
        span, epsilon = self.high - self.low, EPSILONS[self.style]
        return np.where(span == 0, epsilon, span) if self.style == "lerobot" else span + epsilon


@dataclass(frozen=True, eq=False, slots=True)
class Normaliser:
    """The statistics of a checkpoint; `convention` is that of the actions, and mostly of the state.

    `fingerprint` covers the conventions and every number used.
    """

    convention: Convention
    state_scaling: Scaling
    action_scaling: Scaling
    fingerprint: str

    @classmethod
    def of(
        cls,
        statistics: Statistics,
        convention: str,
        state_names: Sequence[str],
        action_names: Sequence[str],
        scales: Scales | None = None,
    ) -> Normaliser:
        """Take what a convention needs.

        Args:
            statistics: of the checkpoint; more numbers than names are padding, and left out.
            convention: "mean_std", "quantile" or "min_max"; "none" (raw values) only where the checkpoint says so.
            state_names: joints of the state, in the policy's order.
            action_names: joints of an action, in the policy's order.
            scales: what is scaled otherwise.

        Raises:
            FlashrtError: BAD_CHECKPOINT if a statistic is absent, too short, not finite or impossible.
        """
        scales = scales or Scales(convention)
        of_state, of_actions = _known(scales.state, statistics), _known(convention, statistics)
        raw, binary = _which(action_names, scales.raw), _which(action_names, scales.binary)
        binary |= statistics.binary(len(action_names)) & ~raw
        actions = _scaling(statistics, "actions", of_actions, raw, binary)
        raw, binary = _which(state_names, scales.raw), _which(state_names, scales.binary)
        state = _scaling(statistics, "state", of_state, raw, binary)
        numbers = [array.tobytes() for part in (state, actions) for array in (part.low, part.high)]
        exceptions = [array for part in (state, actions) for array in (part.raw, part.binary)]
        if of_state != of_actions or any(array.any() for array in exceptions):
            numbers += [of_state.encode(), *(array.tobytes() for array in exceptions)]
        style = f"{of_actions} {EPSILONS[statistics.style]}"
        return cls(of_actions, state, actions, sha256(style.encode(), *numbers))

    def state(self, state: np.ndarray) -> np.ndarray:
        """Measured joints, float64 [state_dim], to the policy's range, float32."""
        return self.state_scaling.normalise(state).astype(np.float32)

    def unnormalise_actions(self, actions: np.ndarray) -> np.ndarray:
        """The policy's actions, float32 [horizon, action_dim], to the robot's units, float64."""
        return self.action_scaling.unnormalise(actions.astype(np.float64))


def _known(convention: str, statistics: Statistics) -> Convention:
    if convention not in _KEYS:
        message = f"normalisation {convention!r} of {statistics.path.parent}: use one of {', '.join(_KEYS)}"
        raise FlashrtError(ErrorCode.BAD_CHECKPOINT, message)
    return convention  # type: ignore[return-value]


def _which(names: Sequence[str], of: Sequence[str]) -> np.ndarray:
    return np.array([name in of for name in names], bool)


def _scaling(
    statistics: Statistics, part: Part, convention: Convention, raw: np.ndarray, binary: np.ndarray
) -> Scaling:
    keys, length = _KEYS[convention], len(raw)
    if not keys:
        return Scaling(convention, np.zeros(length), np.ones(length), raw, binary, statistics.style)
    low, high = (statistics.vector(part, key, length) for key in keys)
    impossible = (high < (0.0 if convention == "mean_std" else low)) & ~raw & ~binary
    if impossible.any():
        index = int(np.argmax(impossible))
        problem = f"{keys[1]} {high[index]} is {'negative' if convention == 'mean_std' else f'below {keys[0]}'}"
        message = f"{statistics.path}: {statistics.name(part)}[{index}]: {problem}"
        raise FlashrtError(ErrorCode.BAD_CHECKPOINT, message)
    return Scaling(convention, low, high, raw, binary, statistics.style)
