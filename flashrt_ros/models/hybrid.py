# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The hybrid policy: a Qwen3.5 backbone that remembers, and a flow-matching head that acts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flashrt_ros.models.append import IMAGE_ROWS, RESTART, SEGMENT_START, TOKENS, append_inputs, append_steps
from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.config import read_config, read_json
from flashrt_ros.models.modules import Modules, Weights
from flashrt_ros.models.mtp import Mtp, has_mtp
from flashrt_ros.models.observation import ModelObservation
from flashrt_ros.models.ops import Ops
from flashrt_ros.models.pi0_guidance import Guidance
from flashrt_ros.models.prompt import Encode, Prompt, read_encoder, text_segment
from flashrt_ros.models.qwen3_5_text import LENGTH, POSITION, Angles
from flashrt_ros.models.speech import Speech
from flashrt_ros.runtime.backend import Inputs, Stage
from flashrt_ros.runtime.buffers import Buffer, BufferSet
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.manifest import sha256
from flashrt_ros.runtime.plan import AT_CURSOR, FAULT, Step, Work
from flashrt_ros.runtime.progress import Tell, tell_nobody

_IMAGES, _HIDDEN, _ACTIONS, _DRAFTS = range(4)


class Hybrid:
    """Stages and buffers of a policy, and the work that each verb is.

    Instructions, observations and what the policy says are segments of rows; `append_{n}` stages run given rows
    through the backbone, `say_*` stages (`speech`) those that they choose. Either leaves hidden states as conditioning.
    `act` integrates a chunk of actions from noise under that conditioning.
    """

    faults: tuple[str, ...] = (
        "image embeddings are not finite",
        "hidden states are not finite",
        "actions are not finite",
        "hidden states of drafts are not finite",
    )

    def __init__(
        self, values: Mapping[str, Any], checkpoint: Checkpoint, encode: Encode, dtype: torch.dtype = torch.float32
    ) -> None:
        """Check everything that can be checked without reading the weights.

        Args:
            values: the checkpoint's config.json.
            checkpoint: its tensors.
            encode: its tokenizer, for the fixed text of prompts.
            dtype: what the policy computes in; actions and their integration are float32.
        """
        self.config = read_config(dict(values))
        self.dtype = dtype
        self.stage_sizes = self.config.stage_sizes
        self.max_rows = self.config.capacity
        self._values = values
        self._checkpoint = checkpoint
        self.prompt = Prompt(self.config, encode)
        self._modules = Modules.build(self.config, dtype, mtp=has_mtp(checkpoint))
        self._weights = Weights(self._modules, checkpoint)
        self.speech = Speech(self._modules.text, self._modules.mtp, self.config, (_HIDDEN, _DRAFTS))
        self._check_room()

    @classmethod
    def from_folder(
        cls, folder: str | Path, dtype: torch.dtype = torch.float32, tensors: Checkpoint | None = None
    ) -> Hybrid:
        """Read config.json, tokenizer.json and the headers of the safetensors files of a checkpoint folder.

        `tensors` take the place of the files.
        """
        folder = Path(folder)
        values = read_json(folder / "config.json")
        checkpoint = tensors if tensors is not None else Checkpoint(folder)
        return cls(values, checkpoint, read_encoder(folder / "tokenizer.json"), dtype)

    def _check_room(self) -> None:
        c = self.config
        observed = self.rows_to_observe(c.max_instruction_tokens)
        if c.layout == "starvla":
            longest = needed = observed
        else:
            instructed = self.prompt.instruct(_filler(c.max_instruction_tokens)).rows
            longest, needed = max(instructed, observed), instructed + c.history * observed
            needed += longest
        for key, room, rows, what in (
            ("max_rows", c.capacity, needed, "a compacted context and one more segment"),
            ("condition_rows", c.condition_capacity, longest, "the longest segment"),
        ):
            if rows > room:
                message = f"config.json.flashrt: {key} leaves room for {room} rows, but {what} may take {rows}"
                raise FlashrtError(ErrorCode.BAD_CHECKPOINT, message)

    def buffers(self) -> list[Buffer]:
        """Every buffer of the policy."""
        c = self.config
        views, hidden = len(c.views), c.text.hidden_size
        chunk = (c.head.horizon, c.head.action_dim)
        rows = POSITION if c.condition == "all" else ""
        return [
            *self._weights.buffers(),
            *self._modules.buffers(),
            Buffer("condition", (c.condition_capacity, hidden), torch.float32, "state", "context", rows),
            Buffer("condition_rows", (1,), torch.int64, "state", "context"),
            Buffer("proprio", (c.state_dim,), torch.float32, "state", "context"),
            Buffer("generator", (2,), torch.int64, "state", "generator"),
            Buffer("chunk", chunk, torch.float32, "state", "chunk"),
            Buffer("previous_chunk", chunk, torch.float32, "state", "chunk"),
            Buffer("images", (views, *c.image_size, 3), torch.uint8, "input"),
            Buffer("proprio_input", (c.state_dim,), torch.float32, "input"),
            Buffer("sample_generator", (2,), torch.int64, "input"),
            *append_inputs(max(*c.stage_sizes, self.speech.rows + 1)),
            *self.speech.buffers(),
            Buffer("sampled", chunk, torch.float32, "output"),
            Buffer(FAULT, (1,), torch.int32, "output", memory="host"),
            Buffer("image_embeds", (views * c.image_rows[0] * c.image_rows[1], hidden), self.dtype, "scratch"),
            Buffer("actions", chunk, torch.float32, "scratch"),
            Buffer("step", (1,), torch.int64, "scratch"),
        ]

    def load_weights(self, buffers: BufferSet, tell: Tell = tell_nobody) -> None:
        """Fill every weight buffer from the checkpoint."""
        self._weights.load(buffers, tell)

    def manifest(self, tell: Tell = tell_nobody) -> dict[str, dict[str, str]]:
        """What makes two policies the same: the files' digests, and the digest of each part of the config."""
        config = {key: sha256(json.dumps(value, sort_keys=True).encode()) for key, value in self._values.items()}
        return {"weights": self._checkpoint.digests(tell), "config": config}

    def stages(self) -> list[Stage]:
        """Every stage of the policy."""
        appends = [Stage(f"append_{n}", partial(self._append, n=n)) for n in self.stage_sizes]
        return [
            Stage("encode_images", self._encode_images),
            *appends,
            *self.speech.stages(),
            Stage("denoise_begin", partial(self._denoise_begin, generator="generator")),
            Stage("denoise_step", self._denoise_step),
            Stage("denoise_end", self._denoise_end),
            Stage("sample_begin", partial(self._denoise_begin, generator="sample_generator")),
            Stage("sample_end", self._sample_end),
        ]

    def _encode_images(self, ops: Ops, b: BufferSet) -> None:
        self._modules.vision.encode(ops, b, b["images"], b["image_embeds"])
        ops.check_finite(b["image_embeds"], b[FAULT], _IMAGES)
        ops.copy(b["proprio_input"], b["proprio"])

    def _append(self, ops: Ops, b: BufferSet, n: int) -> None:
        text, length = self._modules.text, b[LENGTH]
        if self.config.layout == "starvla":
            text.restart(ops, b, b[RESTART])
            ops.clear_if(b[RESTART], [b["condition_rows"]])
        x = ops.scratch((n, self.config.text.hidden_size), self.dtype)
        ops.embed_rows(b[TOKENS][:n], b["embed_tokens"], length, b[IMAGE_ROWS][:n], b["image_embeds"], x)
        angles = text.angles(ops, b, b[POSITION], n)
        if self._modules.mtp is None:
            text.append(ops, b, x, angles)
        else:
            embedding = ops.scratch(tuple(x.shape), self.dtype)
            ops.copy(x, embedding)
            text.append(ops, b, x, angles)
            self._append_mtp(ops, b, self._modules.mtp, embedding, x, angles)
        start = b[POSITION] if self.config.condition == "all" else b[SEGMENT_START]
        ops.append_rows(x, b[FAULT], _HIDDEN, start, length, b["condition"], b["condition_rows"])
        text.advance(ops, b)

    def _append_mtp(self, ops: Ops, b: BufferSet, mtp: Mtp, embedding: Tensor, hidden: Tensor, angles: Angles) -> None:
        """Give the MTP layer the rows of a stage, each with the hidden state of the row before it."""
        before, n = ops.scratch(tuple(hidden.shape), self.dtype), hidden.shape[0]
        ops.last_row(b["condition"], b["condition_rows"], before[:1])
        if n > 1:
            ops.copy(hidden[: n - 1], before[1:])
        mtp.remember(ops, b, embedding, before, angles, b[POSITION], b[LENGTH])

    def _denoise_begin(self, ops: Ops, b: BufferSet, generator: str) -> None:
        ops.normals(b[generator], b["actions"])
        ops.clear(b["step"])
        self._modules.head.begin(ops, b, b["condition"], b["condition_rows"], b["proprio"].unsqueeze(0))

    def _denoise_step(self, ops: Ops, b: BufferSet) -> None:
        actions, velocity = b["actions"], b["head.velocity"]
        self._modules.head.velocity(ops, b, actions, b["step"], b["condition_rows"], velocity)
        ops.euler_step(actions, velocity, 1.0 / self.config.head.steps, b["step"])

    def _denoise_end(self, ops: Ops, b: BufferSet) -> None:
        ops.renew_chunk(b["actions"], b[FAULT], _ACTIONS, b["chunk"], b["previous_chunk"], b["generator"][1:])

    def _sample_end(self, ops: Ops, b: BufferSet) -> None:
        ops.check_finite(b["actions"], b[FAULT], _ACTIONS)
        ops.copy(b["actions"], b["sampled"])

    def instruct(self, tokens: NDArray[np.int64]) -> Work:
        """Append an instruction; with layout "starvla" each observation carries it, and nothing is to do."""
        if self.config.layout == "starvla":
            return Work(steps=())
        segment = self.prompt.instruct(tokens)
        return Work(tuple(append_steps(segment, self.stage_sizes)), segment.rows, AT_CURSOR)

    def observe(self, observation: ModelObservation, tokens: NDArray[np.int64]) -> Work:
        """Encode the images and append their rows; `tokens` is the instruction in force."""
        segment = self.prompt.observe(tokens)

        def fill(b: Inputs) -> None:
            b["images"].copy_(torch.from_numpy(observation.images))
            b["proprio_input"].copy_(torch.from_numpy(observation.proprio))

        rewrites = self.config.layout == "starvla"
        steps = (Step("encode_images", fill), *append_steps(segment, self.stage_sizes, restart=rewrites))
        return Work(steps, segment.rows, 0 if rewrites else AT_CURSOR)

    def act(self, guidance: Guidance | None = None) -> Work:
        """Integrate a chunk of actions from fresh noise; this head takes no guidance."""
        assert guidance is None
        steps = [Step("denoise_step")] * self.config.head.steps
        return Work((Step("denoise_begin"), *steps, Step("denoise_end")))

    def sample(self, key: int, act_index: int) -> Work:
        """Integrate a chunk from the noise of another generator into the output `sampled`; no state is written.

        `key` and `act_index` are what the state `generator` holds; with its own values it is the chunk of `act`.
        """

        def fill(b: Inputs) -> None:
            b["sample_generator"].copy_(torch.tensor([key, act_index]))

        steps = [Step("denoise_step")] * self.config.head.steps
        return Work((Step("sample_begin", fill), *steps, Step("sample_end")))

    def text(self, tokens: NDArray[np.int64], behind: int = 0) -> Work:
        """Append plain text, as a segment or `behind` so many rows of one."""
        steps = append_steps(text_segment(tokens), self.stage_sizes, behind=behind)
        return Work(tuple(steps), len(tokens), AT_CURSOR)

    def rows_to_observe(self, instruction_tokens: int) -> int:
        """Rows that one observation takes."""
        return self.prompt.observe(_filler(instruction_tokens)).rows


def _filler(count: int) -> NDArray[np.int64]:
    return np.zeros(count, dtype=np.int64)
