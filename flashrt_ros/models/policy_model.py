# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a session needs of any policy's model and of its configuration."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.models.observation import Frames, ModelObservation
from flashrt_ros.models.pi0_guidance import Guidance
from flashrt_ros.models.speech import Speech
from flashrt_ros.runtime.backend import Stage
from flashrt_ros.runtime.buffers import Buffer, BufferSet
from flashrt_ros.runtime.plan import Work
from flashrt_ros.runtime.progress import Tell, tell_nobody


class PolicyConfig(Protocol):
    """What a policy is shown, what it gives, and what a session keeps for it."""

    @property
    def name(self) -> str:
        """Of the checkpoint, for people."""

    @property
    def trained(self) -> bool:
        """Whether the weights have been trained."""

    @property
    def views(self) -> tuple[str, ...]:
        """Cameras in the model's order."""

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of a view as the model takes it."""

    @property
    def frames(self) -> Frames:
        """How a camera's image comes to that."""

    @property
    def antialias(self) -> bool:
        """Whether larger images that are padded are made smaller with antialiasing."""

    @property
    def state_names(self) -> tuple[str, ...]:
        """Numbers of the measured state in the model's order."""

    @property
    def state_dim(self) -> int:
        """How many they are."""

    @property
    def action_names(self) -> tuple[str, ...]:
        """Joints of an action in the model's order; they fill the front of a chunk's rows."""

    @property
    def action_dim(self) -> int:
        """How many they are."""

    @property
    def action_mode(self) -> str:
        """Actions are "absolute", or a "delta" to the measured joints."""

    @property
    def absolute_actions(self) -> tuple[str, ...]:
        """Of a policy of deltas, the actions that are absolute all the same."""

    @property
    def normalisation(self) -> str:
        """Which statistics state and actions are scaled by."""

    @property
    def horizon(self) -> int:
        """Rows of a chunk."""

    @property
    def history(self) -> int:
        """Observations that a compaction keeps."""

    @property
    def max_instruction_tokens(self) -> int:
        """Tokens of the longest instruction, with what its prompt adds."""

    @property
    def instruction_size(self) -> int:
        """Numbers that are kept of the longest instruction."""

    @property
    def condition_capacity(self) -> int:
        """Rows of the longest segment that can be said; 0 where nothing can."""

    @property
    def guided(self) -> bool:
        """Whether a chunk can be made to keep to the one before it."""

    @property
    def prefix_lock(self) -> int:
        """How many rows it can be given, as it was trained to, rather than be bent towards them; 0: none."""

    @property
    def rewrites(self) -> bool:
        """Whether each observation rewrites the context from its first row, so that there is no memory in it."""


class PolicyModel(Protocol):
    """Buffers and stages of a policy, and the work that each verb is."""

    stage_sizes: tuple[int, ...]
    faults: tuple[str, ...]
    max_rows: int

    @property
    def config(self) -> PolicyConfig:
        """What the checkpoint says about it."""

    @property
    def speech(self) -> Speech | None:
        """The stages that say something; None: the policy is mute."""

    def buffers(self) -> list[Buffer]:
        """Every buffer that the stages use."""

    def stages(self) -> list[Stage]:
        """Every stage, in an order in which they can be captured."""

    def load_weights(self, buffers: BufferSet, tell: Tell = tell_nobody) -> None:
        """Fill every weight buffer from the checkpoint."""

    def manifest(self, tell: Tell = tell_nobody) -> dict[str, dict[str, str]]:
        """What makes two policies the same; the checksums of the files are taken for it."""

    def instruct(self, tokens: NDArray[np.int64]) -> Work:
        """Take an instruction, int64 [n]."""

    def text(self, tokens: NDArray[np.int64], behind: int = 0) -> Work:
        """Take a text, int64 [n]; NOT_SUPPORTED where the policy is mute."""

    def observe(self, observation: ModelObservation, tokens: NDArray[np.int64]) -> Work:
        """Take an observation; `tokens`: the prompt of the instruction in force."""

    def act(self, guidance: Guidance | None = None) -> Work:
        """Draw a chunk, float32 [horizon, at least action_dim], into the state `chunk`; guided where it can be."""

    def sample(self, key: int, act_index: int) -> Work:
        """Draw a chunk from other noise into the output `sampled`; no state is written."""
