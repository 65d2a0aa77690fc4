# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The hybrid policy: a Qwen3.5 backbone that remembers, and a flow-matching head that acts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from numpy.typing import NDArray

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.config import HybridConfig, read_config, read_json
from flashrt_ros.models.gr00t_head import ActionHead
from flashrt_ros.models.mtp import mtp_weights
from flashrt_ros.models.observation import ModelObservation
from flashrt_ros.models.ops import Ops
from flashrt_ros.models.prompt import Encode, Prompt, Segment
from flashrt_ros.models.qwen3_5_text import LENGTH, POSITION, ROPE_LENGTH, ROPE_OFFSETS, TextModel
from flashrt_ros.models.qwen3_5_vision import VisionModel
from flashrt_ros.models.weights import Weight, load
from flashrt_ros.runtime.backend import Stage
from flashrt_ros.runtime.buffers import Buffer, BufferSet
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.manifest import sha256
from flashrt_ros.runtime.plan import FAULT, Step, Work, split

AT_CURSOR = -1
"""First row of a work whose rows begin where the context ends."""

_IMAGES, _HIDDEN, _ACTIONS = range(3)


class Hybrid:
    """Stages and buffers of a policy, and the work that each verb is.

    Instructions and observations are segments of rows; `append_{n}` stages run them through the backbone, which
    leaves hidden states as conditioning. `act` integrates a chunk of actions from noise under that conditioning.
    """

    faults: tuple[str, ...] = (
        "image embeddings are not finite",
        "hidden states are not finite",
        "actions are not finite",
    )

    def __init__(
        self, values: Mapping[str, Any], checkpoint: Checkpoint, encode: Encode, dtype: torch.dtype = torch.float32
    ) -> None:
        """`values` is the checkpoint's config.json, `encode` its tokenizer. The head computes in float32."""
        self.config = c = read_config(dict(values))
        self.dtype = dtype
        self.stage_sizes = c.stage_sizes
        self.max_rows = min(c.max_rows, c.condition_rows) if c.condition == "all" else c.max_rows
        self._condition_rows = self.max_rows if c.condition == "all" else c.condition_rows
        self._values = values
        self._checkpoint = checkpoint
        self._prompt = Prompt(c, encode)
        self._vision, self._text, self._head = _modules(c, dtype, self.max_rows, self._condition_rows)
        mtp = mtp_weights(c.text, dtype, checkpoint)
        self._weights = [*self._text.weights(), *self._vision.weights(), *self._head.weights(), *mtp]
        self._check_tensors(mtp)
        self._check_room()

    @classmethod
    def from_folder(cls, folder: str | Path, dtype: torch.dtype = torch.float32) -> Hybrid:
        """Read config.json, tokenizer.json and the headers of the safetensors files of a checkpoint folder."""
        folder = Path(folder)
        values = read_json(folder / "config.json")
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"{file}: not found; a checkpoint folder holds it")
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
        return cls(values, Checkpoint(folder), lambda text: tokenizer.encode(text, add_special_tokens=False).ids, dtype)

    def _check_tensors(self, mtp: list[Weight]) -> None:
        expected = {**tensors(self.config), **_shapes(mtp)}
        if self.config.text.tied and "lm_head.weight" in self._checkpoint:
            expected["lm_head.weight"] = expected["language_model.embed_tokens.weight"]
        self._checkpoint.check(expected)

    def _check_room(self) -> None:
        c = self.config
        observed = self.rows_to_observe(c.max_instruction_tokens)
        instructed = self._prompt.instruct(_filler(c.max_instruction_tokens)).rows if c.layout == "append" else 0
        needed = instructed + observed * (1 if c.layout == "starvla" else c.history + 1)
        if needed > self.max_rows:
            raise _too_small("max_rows", self.max_rows, needed, "the longest instruction and the history")
        if max(instructed, observed) > self._condition_rows:
            rows = max(instructed, observed)
            raise _too_small("condition_rows", self._condition_rows, rows, "the longest segment")

    def buffers(self) -> list[Buffer]:
        """Every buffer of the policy."""
        c, head = self.config, self.config.head
        largest = max(c.stage_sizes)
        images = len(c.views) * c.image_rows[0] * c.image_rows[1]
        chunk = (head.horizon, head.action_dim)
        rows = POSITION if c.condition == "all" else ""
        return [
            *(item.buffer for item in self._weights),
            *self._text.buffers(),
            *self._vision.buffers(),
            *self._head.buffers(),
            Buffer("condition", (self._condition_rows, c.text.hidden_size), torch.float32, "state", "context", rows),
            Buffer("condition_rows", (1,), torch.int64, "state", "context"),
            Buffer("proprio", (len(c.state_names),), torch.float32, "state", "context"),
            Buffer("generator", (2,), torch.int64, "state", "generator"),
            Buffer("chunk", chunk, torch.float32, "state", "chunk"),
            Buffer("previous_chunk", chunk, torch.float32, "state", "chunk"),
            Buffer("images", (len(c.views), *c.image_size, 3), torch.uint8, "input"),
            Buffer("proprio_input", (len(c.state_names),), torch.float32, "input"),
            Buffer("tokens", (largest,), torch.int64, "input"),
            Buffer("image_rows", (largest,), torch.int64, "input"),
            Buffer(ROPE_OFFSETS, (3, largest), torch.int64, "input"),
            Buffer(ROPE_LENGTH, (1,), torch.int64, "input"),
            Buffer(LENGTH, (1,), torch.int64, "input"),
            Buffer("restart", (1,), torch.int64, "input"),
            Buffer("segment_start", (1,), torch.int64, "input"),
            Buffer(FAULT, (1,), torch.int32, "output", memory="host"),
            Buffer("image_embeds", (images, c.text.hidden_size), self.dtype, "scratch"),
            Buffer("actions", chunk, torch.float32, "scratch"),
            Buffer("step", (1,), torch.int64, "scratch"),
        ]

    def load_weights(self, buffers: BufferSet) -> None:
        """Read every tensor of the checkpoint, and compute the tables that follow from them."""
        load(self._weights, self._checkpoint, buffers)
        self._text.derive(buffers)
        self._vision.derive(self._checkpoint, buffers)
        self._head.derive(self._checkpoint, buffers)
        if self.config.text.tied and "lm_head.weight" in self._checkpoint:
            head = self._checkpoint.read("lm_head.weight").to(self.dtype)
            if not torch.equal(head, buffers["embed_tokens"].to(head.device)):
                message = "tie_word_embeddings is true, but lm_head.weight is not the embedding"
                raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"config.json: {message}")

    def manifest(self) -> dict[str, dict[str, str]]:
        """What makes two policies the same: the files' digests, and the digest of each part of the config."""
        config = {key: sha256(json.dumps(value, sort_keys=True).encode()) for key, value in self._values.items()}
        return {"weights": self._checkpoint.digests(), "config": config}

    def stages(self) -> list[Stage]:
        """Every stage of the policy."""
        appends = [Stage(f"append_{n}", partial(self._append, n=n)) for n in self.stage_sizes]
        return [
            Stage("encode_images", self._encode_images),
            *appends,
            Stage("denoise_begin", self._denoise_begin),
            Stage("denoise_step", self._denoise_step),
            Stage("denoise_end", self._denoise_end),
        ]

    def _encode_images(self, ops: Ops, b: BufferSet) -> None:
        self._vision.encode(ops, b, b["images"], b["image_embeds"])
        ops.check_finite(b["image_embeds"], b[FAULT], _IMAGES)
        ops.copy(b["proprio_input"], b["proprio"])

    def _append(self, ops: Ops, b: BufferSet, n: int) -> None:
        length = b[LENGTH]
        if self.config.layout == "starvla":
            self._text.restart(ops, b, b["restart"])
        x = ops.scratch((n, self.config.text.hidden_size), self.dtype)
        ops.embed(b["tokens"][:n], b["embed_tokens"], length, x)
        ops.replace_rows(b["image_rows"][:n], b["image_embeds"], x)
        self._text.append(ops, b, x)
        ops.check_finite(x, b[FAULT], _HIDDEN, rows=length)
        start = b[POSITION] if self.config.condition == "all" else b["segment_start"]
        ops.write_rows(x, start, length, b["condition"])
        ops.set_sum(start, length, b["condition_rows"])
        self._text.advance(ops, b)

    def _denoise_begin(self, ops: Ops, b: BufferSet) -> None:
        ops.normals(b["generator"], b["actions"])
        ops.clear(b["step"])
        self._head.begin(ops, b, b["condition"], b["condition_rows"], b["proprio"].unsqueeze(0))

    def _denoise_step(self, ops: Ops, b: BufferSet) -> None:
        actions, velocity = b["actions"], b["head.velocity"]
        self._head.velocity(ops, b, actions, b["step"], b["condition_rows"], velocity)
        ops.euler(actions, velocity, 1.0 / self.config.head.steps, actions)
        ops.increment(b["step"])

    def _denoise_end(self, ops: Ops, b: BufferSet) -> None:
        ops.check_finite(b["actions"], b[FAULT], _ACTIONS)
        ops.copy(b["chunk"], b["previous_chunk"])
        ops.copy(b["actions"], b["chunk"])
        ops.increment(b["generator"][1:])

    def instruct(self, tokens: NDArray[np.int64]) -> Work:
        """Append an instruction; with layout "starvla" each observation carries it, and nothing is to do."""
        if self.config.layout == "starvla":
            return Work(steps=())
        segment = self._prompt.instruct(tokens)
        return Work(tuple(self._appends(segment)), segment.rows, AT_CURSOR)

    def observe(self, observation: ModelObservation, tokens: NDArray[np.int64]) -> Work:
        """Encode the images and append their rows; `tokens` is the instruction in force."""
        segment = self._prompt.observe(tokens)

        def fill(b: BufferSet) -> None:
            b["images"].copy_(torch.from_numpy(observation.images))
            b["proprio_input"].copy_(torch.from_numpy(observation.proprio))

        steps = (Step("encode_images", fill), *self._appends(segment))
        return Work(steps, segment.rows, 0 if self.config.layout == "starvla" else AT_CURSOR)

    def act(self) -> Work:
        """Integrate a chunk of actions from fresh noise."""
        steps = [Step("denoise_step")] * self.config.head.steps
        return Work((Step("denoise_begin"), *steps, Step("denoise_end")))

    def rows_to_observe(self, instruction_tokens: int) -> int:
        """Rows that one observation takes."""
        return self._prompt.observe(_filler(instruction_tokens)).rows

    def _appends(self, segment: Segment) -> list[Step]:
        steps, start = [], 0
        for size, rows in split(segment.rows, self.stage_sizes):
            steps.append(Step(f"append_{size}", _fill(segment, start, size, rows)))
            start += rows
        return steps


def tensors(config: HybridConfig) -> dict[str, tuple[int, ...]]:
    """Canonical name and shape of every tensor that a checkpoint of this config must hold."""
    vision, text, head = _modules(config, torch.float32, max_rows=1, condition_rows=1)
    sources = {part.name: part.shape for part in (*vision.sources(), *head.sources())}
    return {**_shapes([*text.weights(), *vision.weights(), *head.weights()]), **sources}


def _modules(
    c: HybridConfig, dtype: torch.dtype, max_rows: int, condition_rows: int
) -> tuple[VisionModel, TextModel, ActionHead]:
    return (
        VisionModel(c.vision, len(c.views), c.grid, dtype),
        TextModel(c.text, dtype, max_rows),
        ActionHead(c.head, condition_rows, torch.float32),
    )


def _shapes(weights: list[Weight]) -> dict[str, tuple[int, ...]]:
    return {part.name: part.shape for item in weights for part in item.parts}


def _fill(segment: Segment, start: int, size: int, rows: int) -> Callable[[BufferSet], None]:
    """Write the inputs of a stage that appends rows [start, start + rows) of a segment.

    Rotary offsets count from the segment's start, so only the stage that ends it moves the rotary cursor.
    """
    live = slice(start, start + rows)
    last = start + rows == segment.rows
    scalars = {
        LENGTH: rows,
        ROPE_LENGTH: segment.rope_length if last else 0,
        "segment_start": start,
        "restart": int(start == 0),
    }
    columns = {"tokens": segment.tokens, "image_rows": segment.image_rows, ROPE_OFFSETS: segment.offsets}

    def fill(b: BufferSet) -> None:
        for name, value in scalars.items():
            b[name].fill_(value)
        for name, values in columns.items():
            b[name][..., :rows].copy_(torch.from_numpy(values[..., live]))
            b[name][..., rows:size].fill_(-1 if name == "image_rows" else 0)

    return fill


def _filler(count: int) -> NDArray[np.int64]:
    return np.zeros(count, dtype=np.int64)


def _too_small(key: str, rows: int, needed: int, what: str) -> FlashrtError:
    message = f"config.json.flashrt: {key} leaves room for {rows} rows, but {what} take {needed}"
    return FlashrtError(ErrorCode.BAD_CHECKPOINT, message)
