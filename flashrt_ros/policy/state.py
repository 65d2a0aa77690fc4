# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The session's own state buffers: instruction, history and plan. They live in host memory."""

from __future__ import annotations

import numpy as np
import torch

from flashrt_ros.models.policy_model import PolicyConfig
from flashrt_ros.runtime.buffers import Buffer, BufferSet


def session_buffers(config: PolicyConfig) -> list[Buffer]:
    """Declare the buffers.

    `measured` holds the state of the newest observation in robot units; `plan` [chunk planned, its cursor,
    previous chunk planned, its cursor]; `reference` the measured joints that the planned chunk's delta
    actions refer to, in rad or m.
    """
    height, width = config.image_size
    views, history = len(config.views), max(config.history, 1)
    return [
        Buffer("instruction", (config.instruction_size,), torch.int64, "state", "context", memory="host"),
        Buffer("instruction_length", (1,), torch.int64, "state", "context", memory="host"),
        Buffer("history_images", (history, views, height, width, 3), torch.uint8, "state", "history", memory="host"),
        Buffer("history_proprio", (history, config.state_dim), torch.float32, "state", "history", memory="host"),
        Buffer("history_count", (1,), torch.int64, "state", "history", memory="host"),
        Buffer("measured", (config.state_dim,), torch.float64, "state", "history", memory="host"),
        Buffer("plan", (4,), torch.int64, "state", "chunk", memory="host"),
        Buffer("reference", (config.action_dim,), torch.float64, "state", "chunk", memory="host"),
        Buffer("previous_reference", (config.action_dim,), torch.float64, "state", "chunk", memory="host"),
    ]


def write_instruction(b: BufferSet, tokens: np.ndarray) -> None:
    """Put what is kept of the instruction in force, int64 [n]."""
    b["instruction"].zero_()
    b["instruction"][: len(tokens)] = torch.from_numpy(tokens)
    b["instruction_length"][0] = len(tokens)


def read_instruction(b: BufferSet) -> np.ndarray:
    """What is kept of the instruction in force, int64 [n], as a copy."""
    return b["instruction"][: int(b["instruction_length"][0])].numpy().copy()


def push_history(b: BufferSet, images: np.ndarray, proprio: np.ndarray) -> None:
    """Add the newest observation as the last row; the oldest falls out."""
    for name, value in (("history_images", images), ("history_proprio", proprio)):
        b[name][:-1] = b[name][1:].clone()
        b[name][-1] = torch.from_numpy(value)
    b["history_count"].add_(1).clamp_(max=b["history_images"].shape[0])


def read_history(b: BufferSet) -> list[tuple[np.ndarray, np.ndarray]]:
    """The kept observations as (images, proprio) copies, oldest first."""
    count = int(b["history_count"][0])
    images, proprio = b["history_images"], b["history_proprio"]
    return [(images[i].numpy().copy(), proprio[i].numpy().copy()) for i in range(len(images) - count, len(images))]


def plan_new_chunk(b: BufferSet, reference: np.ndarray) -> None:
    """The chunk in force becomes the previous one; the new chunk starts at its first row."""
    plan = b["plan"]
    plan[2:4] = plan[0:2].clone()
    plan[0], plan[1] = 1, 0
    b["previous_reference"].copy_(b["reference"])
    b["reference"].copy_(torch.from_numpy(reference))
