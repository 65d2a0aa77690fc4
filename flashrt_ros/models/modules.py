# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of a hybrid policy, and the checkpoint tensors that they need."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.config import HybridConfig
from flashrt_ros.models.gr00t_head import ActionHead
from flashrt_ros.models.mtp import Mtp
from flashrt_ros.models.qwen3_5_text import TextModel
from flashrt_ros.models.qwen3_5_vision import VisionModel
from flashrt_ros.models.weights import Weight, load
from flashrt_ros.runtime.buffers import Buffer, BufferSet
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.progress import Tell, tell_nobody

_HEAD = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class Modules:
    """Visual tower, language model, action head and, in some checkpoints, the MTP layer."""

    vision: VisionModel
    text: TextModel
    head: ActionHead
    mtp: Mtp | None = None

    @classmethod
    def build(cls, c: HybridConfig, dtype: torch.dtype = torch.float32, mtp: bool = False) -> Modules:
        """The modules of a config, which compute in `dtype`; `mtp`: the checkpoint has that layer."""
        return cls(
            VisionModel(c.vision, len(c.views), c.grid, dtype),
            TextModel(c.text, dtype, c.capacity),
            ActionHead(c.head, c.condition_capacity, dtype),
            Mtp(c.text, dtype, c.capacity, c.drafts) if mtp else None,
        )

    def buffers(self) -> list[Buffer]:
        """The modules' own buffers, without the stored weights."""
        mtp = self.mtp.buffers() if self.mtp is not None else []
        return [*self.vision.buffers(), *self.text.buffers(), *self.head.buffers(), *mtp]

    def weights(self) -> list[Weight]:
        """The stored weights."""
        mtp = self.mtp.weights() if self.mtp is not None else []
        return [*self.vision.weights(), *self.text.weights(), *self.head.weights(), *mtp]

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Canonical name and shape of every checkpoint tensor that the modules need."""
        sources = {part.name: part.shape for part in (*self.vision.sources(), *self.head.sources())}
        return {**_shapes(self.weights()), **sources}


class Weights:
    """The weights of a policy in a checkpoint that has been found to hold them all."""

    def __init__(self, modules: Modules, checkpoint: Checkpoint) -> None:
        """Raises BAD_CHECKPOINT if the tensors are not those that the config implies."""
        self._modules = modules
        self._checkpoint = checkpoint
        self._stored = modules.weights()
        self._check_layers()
        expected = modules.tensors()
        self._tied_copy = modules.text.config.tied and _HEAD in checkpoint
        if self._tied_copy:
            expected[_HEAD] = expected["language_model.embed_tokens.weight"]
        checkpoint.check(expected)

    def _check_layers(self) -> None:
        modules = self._modules
        for key, stem, layers in (
            ("text_config.num_hidden_layers", "language_model.layers", len(modules.text.config.layer_types)),
            ("vision_config.depth", "visual.blocks", modules.vision.config.depth),
            ("framework...num_layers", "action_model.model.transformer_blocks", modules.head.config.layers),
        ):
            found = self._checkpoint.count(stem)
            if found != layers:
                raise _contradiction(f"{key} is {layers}, but {self._checkpoint.folder} holds {found} {stem}")

    def buffers(self) -> list[Buffer]:
        """A buffer for each stored weight."""
        return [item.buffer for item in self._stored]

    def load(self, buffers: BufferSet, tell: Tell = tell_nobody) -> None:
        """Read every tensor, and compute the tables that follow from them."""
        load(self._stored, self._checkpoint, buffers, tell)
        self._modules.text.derive(buffers)
        self._modules.vision.derive(self._checkpoint, buffers)
        self._modules.head.derive(self._checkpoint, buffers)
        if self._tied_copy:
            embedding = self._checkpoint.read("language_model.embed_tokens.weight")
            if not torch.equal(self._checkpoint.read(_HEAD), embedding):
                raise _contradiction(f"tie_word_embeddings is true, but {_HEAD} differs from the embedding")


def _shapes(weights: list[Weight]) -> dict[str, tuple[int, ...]]:
    return {part.name: part.shape for item in weights for part in item.parts}


def _contradiction(message: str) -> FlashrtError:
    return FlashrtError(ErrorCode.BAD_CHECKPOINT, f"config.json: {message}")
