# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Measured joints into the range that a policy was trained in, and its actions back out of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.manifest import sha256

Convention = Literal["mean_std", "quantile", "none"]

STATISTICS_FILE = "norm_stats.json"
EPSILON = 1e-6
_KEYS: dict[str, tuple[str, ...]] = {"mean_std": ("mean", "std"), "quantile": ("q01", "q99"), "none": ()}


@dataclass(frozen=True, eq=False, slots=True)
class Scaling:
    """One vector's statistics under one convention; `low` and `high` are mean and std, or q01 and q99.

    openpi's conventions: `(x - mean) / (std + 1e-6)`, and `(x - q01) / (q99 - q01 + 1e-6) * 2 - 1`.
    """

    convention: Convention
    low: np.ndarray
    high: np.ndarray

    def normalise(self, x: np.ndarray) -> np.ndarray:
        """float64 [..., n] to the policy's range."""
        if self.convention == "mean_std":
            return (x - self.low) / (self.high + EPSILON)
        if self.convention == "quantile":
            return (x - self.low) / (self.high - self.low + EPSILON) * 2.0 - 1.0
        return x

    def unnormalise(self, x: np.ndarray) -> np.ndarray:
        """float64 [..., n] back from the policy's range."""
        if self.convention == "mean_std":
            return x * (self.high + EPSILON) + self.low
        if self.convention == "quantile":
            return (x + 1.0) / 2.0 * (self.high - self.low + EPSILON) + self.low
        return x


@dataclass(frozen=True, eq=False, slots=True)
class Normaliser:
    """The statistics of a checkpoint. `fingerprint` covers the convention and every number used."""

    convention: Convention
    state_scaling: Scaling
    action_scaling: Scaling
    fingerprint: str

    @classmethod
    def load(
        cls, folder: str | Path, convention: str, state_names: Sequence[str], action_names: Sequence[str]
    ) -> Normaliser:
        """Read `folder`/norm_stats.json in openpi's form.

        Args:
            folder: the checkpoint.
            convention: "mean_std" or "quantile"; "none" (raw values) only where the checkpoint's config says so.
            state_names: joints of the state, in the policy's order.
            action_names: joints of an action, in the policy's order.

        Raises:
            FlashrtError: BAD_CHECKPOINT if the file or a statistic is absent, of wrong length, not finite
                or impossible.
        """
        if convention not in _KEYS:
            raise _bad(f"flashrt.normalisation {convention!r} in {folder}/config.json: use one of {', '.join(_KEYS)}")
        kind: Convention = convention  # type: ignore[assignment]
        path = Path(folder) / STATISTICS_FILE
        statistics = {} if kind == "none" else _read(path)
        state = _scaling(path, statistics, "state", kind, len(state_names))
        actions = _scaling(path, statistics, "actions", kind, len(action_names))
        numbers = [array.tobytes() for part in (state, actions) for array in (part.low, part.high)]
        return cls(kind, state, actions, sha256(f"{kind} {EPSILON}".encode(), *numbers))

    def state(self, state: np.ndarray) -> np.ndarray:
        """Measured joints, float64 [state_dim], to the policy's range, float32."""
        return self.state_scaling.normalise(state).astype(np.float32)

    def unnormalise_actions(self, actions: np.ndarray) -> np.ndarray:
        """The policy's actions, float32 [horizon, action_dim], to the robot's units, float64."""
        return self.action_scaling.unnormalise(actions.astype(np.float64))


def _bad(message: str) -> FlashrtError:
    return FlashrtError(ErrorCode.BAD_CHECKPOINT, message)


def _read(path: Path) -> Mapping[str, object]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise _bad(f"{path}: {error.strerror}; the checkpoint needs its normalisation statistics") from error
    except ValueError as error:
        raise _bad(f"{path}: not JSON: {error}") from error
    statistics = content.get("norm_stats") if isinstance(content, dict) else None
    if not isinstance(statistics, dict):
        raise _bad(f"{path}: no object under the key 'norm_stats'; found {_found(content)}")
    return statistics


def _scaling(path: Path, statistics: Mapping[str, object], part: str, convention: Convention, length: int) -> Scaling:
    keys = _KEYS[convention]
    if not keys:
        return Scaling(convention, np.zeros(length), np.ones(length))
    vectors = statistics.get(part)
    if not isinstance(vectors, dict):
        raise _bad(f"{path}: no object under the key 'norm_stats.{part}'; found {_found(statistics)}")
    low, high = (_vector(path, vectors, part, key, length) for key in keys)
    impossible = high < (0.0 if convention == "mean_std" else low)
    if impossible.any():
        index = int(np.argmax(impossible))
        problem = f"std {high[index]} is negative" if convention == "mean_std" else f"q99 {high[index]} is below q01"
        raise _bad(f"{path}: norm_stats.{part}[{index}]: {problem}")
    return Scaling(convention, low, high)


def _vector(path: Path, vectors: Mapping[str, object], part: str, key: str, length: int) -> np.ndarray:
    name = f"norm_stats.{part}.{key}"
    values = vectors.get(key)
    if not isinstance(values, list):
        raise _bad(f"{path}: no list under the key '{name}'; found {_found(vectors)}")
    if len(values) != length:
        raise _bad(f"{path}: {name} has {len(values)} values, the config names {length}")
    for index, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
            raise _bad(f"{path}: {name}[{index}] is {value!r}, not a finite number")
    return np.array(values, np.float64)


def _found(content: object) -> str:
    return ", ".join(sorted(content)[:10]) or "nothing" if isinstance(content, dict) else type(content).__name__
