# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""pi0 and pi0.5: a prefix of images and language, and a chunk of actions denoised behind it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.gemma import EPS, GainNorms, Place
from flashrt_ros.models.observation import ModelObservation
from flashrt_ros.models.ops import Ops
from flashrt_ros.models.pi0_config import read_pi0
from flashrt_ros.models.pi0_expert import times
from flashrt_ros.models.pi0_guidance import Guidance, guidance_strength
from flashrt_ros.models.pi0_modules import Pi0Modules
from flashrt_ros.runtime.backend import Inputs, Stage
from flashrt_ros.runtime.buffers import Buffer, BufferSet
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.manifest import sha256
from flashrt_ros.runtime.plan import FAULT, Step, Work
from flashrt_ros.runtime.progress import Tell, tell_nobody

POSITION = "position"
"""Cursor of the rows of the prefix, pi0's state token counted."""

_IMAGES, _PREFIX, _ACTIONS = range(3)


class Pi0:
    """Stages and buffers of a policy, and the work that each verb is.

    An observation rewrites the prefix from its first row, because its rows attend to each other in both directions.
    Any number of chunks can be drawn behind it.
    """

    faults: tuple[str, ...] = (
        "image embeddings are not finite",
        "keys and values of the prefix are not finite",
        "actions are not finite",
    )

    speech = None

    def __init__(
        self,
        values: Mapping[str, Any],
        extra: Mapping[str, Any],
        checkpoint: Checkpoint,
        dtype: torch.dtype = torch.float32,
        widths: tuple[int, int] | None = None,
        views: Sequence[str] | None = None,
        fp8: bool = False,
    ) -> None:
        """Check everything that can be checked without reading the weights.

        Args:
            values: the checkpoint's config.json.
            extra: its flashrt.json; empty where there is none.
            checkpoint: its tensors.
            dtype: what the policy computes in; actions and their integration are float32.
            widths: how many numbers its statistics have for state and action.
            views: the cameras there are; none: those of the checkpoint.
            fp8: the weights of the action expert's layers are float8_e4m3fn, with a scale for each row.
        """
        self.config = read_pi0(values, extra, is_adaptive(checkpoint), widths, views)
        self.dtype = dtype
        self.stage_sizes = self.config.prompt_sizes
        self.max_rows = self.config.max_rows
        self._values = {**values, "flashrt": dict(extra)}
        self._checkpoint = checkpoint
        c = self.config
        self._fp8 = fp8
        self._modules = Pi0Modules.build(c, dtype, fp8)
        checkpoint.check(self._modules.tensors(checkpoint))

    def buffers(self) -> list[Buffer]:
        """Every buffer of the policy."""
        c = self.config
        chunk, prompt = (c.horizon, c.action_width), c.prompt_sizes[-1]
        rows = c.image_rows + prompt
        return [
            *self._modules.buffers(self._checkpoint),
            Buffer("zero", (1,), torch.int64, "weight"),
            Buffer("horizon", (1,), torch.int64, "weight"),
            Buffer("guidance", (c.steps, 2), torch.float32, "weight"),
            Buffer(POSITION, (1,), torch.int64, "state", "context"),
            Buffer("generator", (2,), torch.int64, "state", "generator"),
            Buffer("chunk", chunk, torch.float32, "state", "chunk"),
            Buffer("previous_chunk", chunk, torch.float32, "state", "chunk"),
            Buffer("images", (len(c.views), *c.image_size, 3), torch.uint8, "input"),
            Buffer("tokens", (prompt,), torch.int64, "input"),
            Buffer("prompt_length", (1,), torch.int64, "input"),
            Buffer("prefix_length", (1,), torch.int64, "input"),
            Buffer("proprio_input", (c.state_width,), torch.float32, "input"),
            Buffer("sample_generator", (2,), torch.int64, "input"),
            *(Buffer(f"{name}_input", shape, dtype, "input") for name, shape, dtype in self._guided()),
            Buffer("sampled", chunk, torch.float32, "output"),
            Buffer(FAULT, (1,), torch.int32, "output", memory="host"),
            Buffer("prefix", (rows, c.language.width), self.dtype, "scratch"),
            Buffer("end", (1,), torch.int64, "scratch"),
            Buffer("step", (1,), torch.int64, "scratch"),
            Buffer("actions", chunk, torch.float32, "scratch"),
            Buffer("velocity", chunk, torch.float32, "scratch"),
            *(Buffer(name, shape, dtype, "scratch") for name, shape, dtype in self._guided()),
        ]

    def _guided(self) -> list[tuple[str, tuple[int, ...], torch.dtype]]:
        c = self.config
        return [
            ("target", (c.horizon, c.action_width), torch.float32),
            ("target_weight", (c.horizon,), torch.float32),
            ("locked", (1,), torch.int64),
        ]

    def load_weights(self, buffers: BufferSet, tell: Tell = tell_nobody) -> None:
        """Fill every weight buffer from the checkpoint."""
        self._modules.load(self._checkpoint, buffers, tell)
        buffers["horizon"].fill_(self.config.horizon)
        time = times(self.config.steps, self.config.accumulated_time)
        buffers["guidance"].copy_(torch.stack((time, guidance_strength(time)), dim=1))

    def manifest(self, tell: Tell = tell_nobody) -> dict[str, dict[str, str]]:
        """What makes two policies the same: the files' digests, and the digest of each part of the config."""
        config = {key: sha256(json.dumps(value, sort_keys=True).encode()) for key, value in self._values.items()}
        config["views"] = sha256(json.dumps(self.config.views).encode())
        weights = self._checkpoint.digests(tell)
        if self._fp8:
            weights["expert"] = "float8_e4m3fn, a scale for each row"
        return {"weights": weights, "config": config}

    def stages(self) -> list[Stage]:
        """Every stage of the policy."""
        return [
            Stage("encode_images", self._encode_images),
            *(Stage(f"prefix_{size}", partial(self._prefix, size=size)) for size in self.config.prompt_sizes),
            Stage("denoise_begin", partial(self._denoise_begin, generator="generator")),
            Stage("denoise_step", self._denoise_step),
            Stage("denoise_end", self._denoise_end),
            Stage("sample_begin", partial(self._denoise_begin, generator="sample_generator")),
            Stage("sample_end", self._sample_end),
        ]

    def _encode_images(self, ops: Ops, b: BufferSet) -> None:
        rows = b["prefix"][: self.config.image_rows]
        self._modules.vision.encode(ops, b, b["images"], rows)
        ops.check_finite(rows, b[FAULT], _IMAGES)

    def _prefix(self, ops: Ops, b: BufferSet, size: int) -> None:
        """Keys and values of [images | prompt], the prompt padded to `size` rows, and of pi0's state token."""
        length, position, images = b["prefix_length"], b[POSITION], self.config.image_rows
        x = b["prefix"][: images + size]
        ops.embed(b["tokens"][:size], b["embed_tokens"], b["prompt_length"], x[images:])
        place = Place(b["zero"], length, length)
        self._modules.language.run(ops, b, x, GainNorms(b, "language"), place, cache_alone=True)
        ops.copy(length, position)
        if not self.config.adaptive:
            ops.increment(position)
            self._modules.expert.begin(ops, b, b["proprio_input"][None], length, position)
        last = b[f"cache.{self.config.language.depth - 1}.value"]
        ops.check_finite(last.flatten(1), b[FAULT], _PREFIX, rows=position)

    def _denoise_begin(self, ops: Ops, b: BufferSet, generator: str) -> None:
        ops.normals(b[generator], b["actions"])
        ops.clear(b["step"])
        ops.set_sum(b[POSITION], b["horizon"], b["end"])
        for name, _, _ in self._guided():
            ops.copy(b[f"{name}_input"], b[name])
        ops.write_rows(b["target"], b["zero"], b["locked"], b["actions"])

    def _denoise_step(self, ops: Ops, b: BufferSet) -> None:
        c, actions, step, expert = self.config, b["actions"], b["step"], self._modules.expert
        x = ops.scratch((c.horizon, c.expert.width), self.dtype)
        expert.embed(ops, b, actions, step, x)
        norms, last = expert.run(ops, b, x, step, Place(b[POSITION], b["end"]))
        ops.finish_step(
            x,
            norms.gain(last),
            norms.step,
            b["expert.action_out"],
            b[f"expert.bias.{last}"],
            EPS,
            target=b["target"],
            weight=b["target_weight"],
            table=b["guidance"],
            step=step,
            dt=-1.0 / c.steps,
            start=b["zero"],
            locked=b["locked"],
            velocity=b["velocity"],
            actions=actions,
        )
        ops.increment(step)

    def _denoise_end(self, ops: Ops, b: BufferSet) -> None:
        ops.renew_chunk(b["actions"], b[FAULT], _ACTIONS, b["chunk"], b["previous_chunk"], b["generator"][1:])

    def _sample_end(self, ops: Ops, b: BufferSet) -> None:
        ops.check_finite(b["actions"], b[FAULT], _ACTIONS)
        ops.copy(b["actions"], b["sampled"])

    def instruct(self, tokens: NDArray[np.int64]) -> Work:
        """Do nothing: each observation carries the instruction."""
        return Work(steps=())

    def text(self, tokens: NDArray[np.int64], behind: int = 0) -> Work:
        """Refuse: nothing is appended to a prefix."""
        raise FlashrtError(ErrorCode.NOT_SUPPORTED, f"{self.config.name} takes no text besides its instruction")

    def observe(self, observation: ModelObservation, tokens: NDArray[np.int64]) -> Work:
        """Encode the images and write the prefix; `tokens` is the prompt in force."""
        c, count = self.config, len(tokens)
        size = next(size for size in c.prompt_sizes if size >= count)

        def fill_images(b: Inputs) -> None:
            b["images"].copy_(torch.from_numpy(observation.images))

        def fill_prompt(b: Inputs) -> None:
            b["tokens"][:count].copy_(torch.from_numpy(tokens))
            b["tokens"][count:].zero_()
            b["prompt_length"].fill_(count)
            b["prefix_length"].fill_(c.image_rows + count)
            b["proprio_input"].zero_()
            b["proprio_input"][: c.state_dim].copy_(torch.from_numpy(observation.proprio))

        rows = c.image_rows + count + (not c.adaptive)
        return Work((Step("encode_images", fill_images), Step(f"prefix_{size}", fill_prompt)), rows, 0)

    def act(self, guidance: Guidance | None = None) -> Work:
        """Integrate a chunk of actions from fresh noise."""
        return self._denoise("denoise", guidance, None)

    def sample(self, key: int, act_index: int) -> Work:
        """Integrate a chunk from the noise of another generator into the output `sampled`; no state is written.

        `key` and `act_index` are what the state `generator` holds; with its own values it is the chunk of `act`.
        """
        return self._denoise("sample", None, (key, act_index))

    def _denoise(self, name: str, guidance: Guidance | None, generator: tuple[int, int] | None) -> Work:
        def fill(b: Inputs) -> None:
            for part, _, _ in self._guided():
                b[f"{part}_input"].zero_()
            if guidance is not None:
                b["target_input"].copy_(torch.from_numpy(guidance.target))
                b["target_weight_input"].copy_(torch.from_numpy(guidance.weight))
                b["locked_input"].fill_(guidance.locked)
            if generator is not None:
                b["sample_generator"].copy_(torch.tensor(generator))

        steps = [Step("denoise_step")] * self.config.steps
        return Work((Step(f"{name}_begin", fill), *steps, Step(f"{name}_end")))


def is_pi0(checkpoint: Checkpoint) -> bool:
    """Whether the tensors are those of pi0 or pi0.5."""
    return any(name.startswith("paligemma_with_expert.") for name in checkpoint.shapes)


def is_adaptive(checkpoint: Checkpoint) -> bool:
    """Whether the tensors are those of pi0.5."""
    return "time_mlp_in.weight" in checkpoint
