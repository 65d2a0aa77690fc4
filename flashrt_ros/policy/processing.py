# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From what a robot measures to what a model takes, and from what a model gives to what a robot does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from flashrt_ros.models.observation import ModelObservation
from flashrt_ros.models.policy_model import PolicyConfig
from flashrt_ros.policy.images import resize_with_pad, stretch
from flashrt_ros.policy.normalise import Normaliser
from flashrt_ros.policy.prompts import Prompts
from flashrt_ros.policy.text import TextTokenizer
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

PLAUSIBLE = 1e6
"""Normalised values are of the order of one; squares of larger ones leave the range of float32 in a network."""


@dataclass(frozen=True, eq=False, slots=True)
class Observation:
    """What a robot saw and measured at one moment.

    Attributes:
        images: view name to uint8 [height, width, 3], RGB, any size.
        state: float64 [state_dim] in the order of the config's `state_names`; rad or m.
        stamp: ns, of the oldest part.
        stamps: ns, of each part (a view's name, "state") where that is known.
        places: where in the state the numbers of each of its sources are; empty: it has one source, "state".
    """

    images: Mapping[str, np.ndarray]
    state: np.ndarray
    stamp: int
    stamps: Mapping[str, int] = field(default_factory=dict)
    places: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def measured(self) -> tuple[float, ...]:
        """The joints of `state`, as a boundary keeps them."""
        return tuple(float(value) for value in self.state)


class Processor:
    """Checks and converts; holds nothing that changes."""

    def __init__(self, config: PolicyConfig, prompts: Prompts, normaliser: Normaliser) -> None:
        """BAD_CHECKPOINT for an unknown action mode, or a delta action that is not measured or is either 0 or 1."""
        self.config = config
        self.prompts = prompts
        self.normaliser = normaliser
        if config.action_mode not in ("delta", "absolute"):
            raise _bad_config(config, f"action_mode {config.action_mode!r}: use delta or absolute")
        delta = config.action_mode == "delta"
        self._relative = np.array([delta and name not in config.absolute_actions for name in config.action_names], bool)
        relative = [name for name, is_relative in zip(config.action_names, self._relative, strict=True) if is_relative]
        unmeasured = [name for name in relative if name not in config.state_names]
        if unmeasured:
            raise _bad_config(config, f"action_mode delta, but action_names {unmeasured} are not among state_names")
        either = self._relative & normaliser.action_scaling.binary
        if either.any():
            names = [name for name, found in zip(config.action_names, either, strict=True) if found]
            raise _bad_config(config, f"action_mode delta, but {names} are 0 or 1: list them in absolute_actions")

    @property
    def tokenizer(self) -> TextTokenizer:
        """The checkpoint's."""
        return self.prompts.tokenizer

    def framed(self, observation: Observation) -> Observation:
        """Check an observation, and bring its views to the config's frames, in its order: what is kept of one.

        To be framed again alters nothing, though what the model sees may be of another size.

        Raises:
            FlashrtError: BAD_OBSERVATION for anything amiss.
        """
        images = self._frames(observation)
        self._proprio(observation.state)
        return replace(observation, images=images)

    def observation(self, observation: Observation) -> ModelObservation:
        """What the model sees of an observation: its frames stretched to the model's size, its state normalised.

        Raises:
            FlashrtError: BAD_OBSERVATION for anything amiss.
        """
        frames = self._frames(observation)
        images = np.stack([stretch(image, self.config.frames.seen) for image in frames.values()])
        return ModelObservation(images, self._proprio(observation.state))

    def _frames(self, observation: Observation) -> dict[str, np.ndarray]:
        config = self.config
        if not isinstance(observation.stamp, int) or observation.stamp < 0:
            raise _bad_observation(f"stamp is {observation.stamp!r}; give whole nanoseconds")
        missing = [view for view in config.views if view not in observation.images]
        extra = [view for view in observation.images if view not in config.views]
        if missing or extra:
            raise _bad_observation(f"views missing {missing}, unknown {extra}; give {list(config.views)}")
        return {view: self._frame(view, observation.images[view]) for view in config.views}

    def reference(self, state: np.ndarray) -> np.ndarray:
        """The measured values of the action's joints, float64 [action_dim]; NaN for one that is not measured."""
        measured = dict(zip(self.config.state_names, self._state(state), strict=True))
        return np.array([measured.get(name, np.nan) for name in self.config.action_names], np.float64)

    def actions(self, chunk: np.ndarray, reference: np.ndarray) -> np.ndarray:
        """Convert a chunk to the robot's units.

        Args:
            chunk: float32 [horizon, action_dim or more], the policy's range; what is more is padding.
            reference: float64 [action_dim], the joints measured when the chunk's observation was taken. Each
                row of a delta chunk is relative to them, as openpi trains and StarVLA with its `rel`, but for its
                `absolute_actions`; absolute ignores them.

        Returns:
            float64 [horizon, action_dim], absolute, rad or m.

        Raises:
            FlashrtError: NOT_FINITE if a value comes out as NaN or infinity.
        """
        actions = self.normaliser.unnormalise_actions(chunk[:, : self.config.action_dim])
        if self.config.action_mode == "delta":
            actions = actions + np.where(self._relative, reference, 0.0)
        broken = ~np.isfinite(actions).all(axis=0)
        if broken.any():
            names = [name for name, bad in zip(self.config.action_names, broken, strict=True) if bad]
            raise FlashrtError(ErrorCode.NOT_FINITE, f"actions of {', '.join(names)} are not finite; none is used")
        return actions

    def rebased(self, chunk: np.ndarray, old: np.ndarray, new: np.ndarray) -> np.ndarray:
        """The same motion, float32 [rows, action_dim or more], relative to the joints `new` instead of `old`.

        Padding becomes 0, what openpi and LeRobot train with; LeRobot lets it come out as anything.
        """
        moved, count = np.zeros_like(chunk), self.config.action_dim
        moved[:, :count] = chunk[:, :count]
        if self.config.action_mode == "delta":
            actions = self.normaliser.unnormalise_actions(chunk[:, :count]) + np.where(self._relative, old - new, 0.0)
            moved[:, :count] = self.normaliser.action_scaling.normalise(actions)
        return moved

    def instruction(self, text: str) -> np.ndarray:
        """What is kept of an instruction, int64 [n].

        Raises:
            FlashrtError: BAD_INSTRUCTION if it is empty, too long, or holds the text of a special token.
        """
        return self.prompts.instruction(text)

    def prompt(self, kept: np.ndarray, proprio: np.ndarray) -> np.ndarray:
        """The tokens, int64 [n], of a kept instruction for an observation with this normalised state."""
        return self.prompts.prompt(kept, proprio)

    def _frame(self, view: str, image: np.ndarray) -> np.ndarray:
        frames, pixels = self.config.frames, np.asarray(image)
        try:
            if frames.fit == "stretch":
                return stretch(pixels, frames.size)
            return resize_with_pad(pixels, frames.size, antialias=self.config.antialias)
        except FlashrtError as error:
            raise _bad_observation(f"view {view}: {error}") from error

    def _proprio(self, state: np.ndarray) -> np.ndarray:
        values = self._state(state)
        with np.errstate(over="ignore"):
            proprio = self.normaliser.state(values)
        if not np.abs(proprio).max(initial=0.0) < PLAUSIBLE:
            raise _bad_observation(f"state {values.tolist()} is beyond anything the statistics know; check its units")
        return proprio

    def _state(self, state: np.ndarray) -> np.ndarray:
        names = self.config.state_names
        values = np.asarray(state)
        if values.shape != (len(names),) or values.dtype.kind not in "fiu":
            raise _bad_observation(
                f"state is {values.dtype} {list(values.shape)}; give {len(names)} numbers: {', '.join(names)}"
            )
        values = values.astype(np.float64)
        broken = [f"{name} {value}" for name, value in zip(names, values, strict=True) if not np.isfinite(value)]
        if broken:
            raise _bad_observation(f"state is not finite: {', '.join(broken)}")
        return values


def _bad_observation(message: str) -> FlashrtError:
    return FlashrtError(ErrorCode.BAD_OBSERVATION, f"observation: {message}")


def _bad_config(config: PolicyConfig, message: str) -> FlashrtError:
    return FlashrtError(ErrorCode.BAD_CHECKPOINT, f"checkpoint {config.name}: {message}")
