# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of pi0 and pi0.5, and the checkpoint tensors that they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.gemma import Cache, Gemma
from flashrt_ros.models.pi0_config import Pi0Config
from flashrt_ros.models.pi0_expert import Expert
from flashrt_ros.models.siglip import Siglip
from flashrt_ros.models.weights import Part, Weight, centred, load, weight
from flashrt_ros.runtime.buffers import Buffer, BufferSet
from flashrt_ros.runtime.progress import Tell, tell_nobody

_PALIGEMMA = "paligemma_with_expert.paligemma."
_LANGUAGE = f"{_PALIGEMMA}model.language_model."
_EXPERT_HEAD = "paligemma_with_expert.gemma_expert.lm_head.weight"
_EMBEDDING, _HEAD = f"{_LANGUAGE}embed_tokens.weight", f"{_PALIGEMMA}lm_head.weight"
"""One tensor under two names: safetensors keeps the second alone."""


class Names(Protocol):
    """What knows which tensors there are."""

    def __contains__(self, name: str, /) -> bool: ...


@dataclass(frozen=True, slots=True)
class Pi0Modules:
    """Visual tower, language model, action expert, and the cache that the last two share."""

    config: Pi0Config
    dtype: torch.dtype
    vision: Siglip
    language: Gemma
    expert: Expert
    cache: Cache

    @classmethod
    def build(cls, c: Pi0Config, dtype: torch.dtype, fp8: bool = False) -> Pi0Modules:
        """The modules of a config, which compute in `dtype`; `fp8`: the expert's weights are quantised."""
        return cls(
            c,
            dtype,
            Siglip(c.vision, len(c.views), c.patches, c.language.width, dtype),
            Gemma(c.language, "language", _LANGUAGE, dtype, ends_in_cache=True),
            Expert(c, dtype, fp8),
            Cache(c.language, c.max_rows, c.horizon, dtype),
        )

    def weights(self, there: Names) -> list[Weight]:
        """The stored weights, from the tensors that are `there`."""
        c, language = self.config, self.config.language
        name = _EMBEDDING if _EMBEDDING in there else _HEAD
        table = Part(name, (c.vocab_size, language.width), lambda w: w * language.width**0.5, by_rows=True)
        norms = self.language.norm_keys()[: 2 * language.depth - 1]
        return [
            *self.vision.weights(),
            weight("embed_tokens", self.dtype, table),
            *self.language.weights(),
            *(centred(f"language.norm.{number}", f"{key}.weight", language.width) for number, key in enumerate(norms)),
            *self.expert.weights(),
        ]

    def tensors(self, there: Names) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor that a checkpoint has to have; those that are not used are among them.

        A tied table under its other name, and the head that openpi leaves unused, may be `there` as well.
        """
        c, width = self.config, self.config.language.width
        parts = [part for item in self.weights(there) for part in item.parts]
        parts += [*self.expert.sources(), *self.language.unused()]
        parts += [Part(f"{key}.weight", (width,)) for key in self.language.norm_keys()[-2:]]
        optional = [Part(name, (c.vocab_size, width)) for name in (_EMBEDDING, _HEAD)]
        optional.append(Part(_EXPERT_HEAD, (c.vocab_size, c.expert.width)))
        parts += [part for part in optional if part.name in there]
        return {part.name: part.shape for part in parts}

    def buffers(self, there: Names) -> list[Buffer]:
        """Weights and cache."""
        stored = (buffer for item in self.weights(there) for buffer in item.buffers)
        return [*stored, *self.expert.buffers(), *self.cache.buffers()]

    def load(self, checkpoint: Checkpoint, buffers: BufferSet, tell: Tell = tell_nobody) -> None:
        """Read every tensor, and compute the tables that follow from them."""
        load(self.weights(checkpoint), checkpoint, buffers, tell)
        self.expert.derive(checkpoint, buffers)
        self.cache.derive(buffers)
