# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The bytes and operations that a stage cannot do without, from the config alone.

Bytes: each weight once, the live rows of the KV cache once, recurrent and conv states in and out, what is written.
Activations between layers are not counted: they can stay in the cache. Operations: two for each weight and row that
meet, four for each feature of a query and a key that meet, seven for each entry of a recurrent state and row (decay,
two sums over it, one update).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from flashrt_ros.models.backbone_config import FULL
from flashrt_ros.models.hybrid import Hybrid
from flashrt_ros.runtime.buffers import Buffer

_DELTA_OPERATIONS = 7


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes to move and operations to do."""

    nbytes: float
    operations: float

    def __add__(self, other: Work) -> Work:
        return Work(self.nbytes + other.nbytes, self.operations + other.operations)


class StageWork:
    """The work of each stage of a policy."""

    def __init__(self, model: Hybrid) -> None:
        self._config = model.config
        self._item = model.dtype.itemsize
        self._buffers = model.buffers()
        self._weights = [spec for spec in self._buffers if spec.kind == "weight"]
        self._drafts = model.speech.rows - 1

    def append(self, rows: int, position: int) -> Work:
        """Of `append_{rows}` behind `position` rows."""
        return self._text(rows, position) + self._remember(rows)

    def say_begin(self, position: int) -> Work:
        """Of `say_begin`: a token is chosen, and each draft behind it."""
        return self._choose(1) + self._further_drafts(self._drafts, position)

    def say_step(self, position: int) -> Work:
        """Of `say_step`, however many of its rows count."""
        rows = 1 + self._drafts
        said = self._text(rows, position) + self._choose(rows)
        if not self._drafts:
            return said
        return said + self._draft(rows, position) + self._choose(1) + self._further_drafts(self._drafts - 1, position)

    def _text(self, rows: int, position: int) -> Work:
        """Rows through the language model: its weights, caches and states, and the hidden states that are kept."""
        c = self._config.text
        linear = sum(kind != FULL for kind in c.layer_types)
        attention = self._attention(len(c.layer_types) - linear, rows, position)
        state = c.v_heads * c.k_dim * c.v_dim
        conv = (c.conv_taps - 1) * c.conv_width * self._item
        delta = Work(2 * linear * (4 * state + conv), _DELTA_OPERATIONS * linear * rows * state)
        ends = Work(rows * c.hidden_size * (self._item + 4), 0)
        return self._meet("text.", lambda spec: rows) + attention + delta + ends

    def _remember(self, rows: int) -> Work:
        """Rows of which the MTP layer, if there is one, gets keys and values alone."""
        c, kv = self._config.text, 2 * self._config.text.kv_heads * self._config.text.head_dim
        if not self._drafts:
            return Work(0, 0)
        weights = (2 * c.hidden_size + kv) * c.hidden_size
        return Work((weights + rows * kv) * self._item, 2 * rows * weights)

    def _draft(self, rows: int, position: int) -> Work:
        """Rows through the MTP layer, if there is one."""
        return self._meet("mtp.", lambda spec: rows) + self._attention(int(self._drafts > 0), rows, position)

    def _further_drafts(self, count: int, position: int) -> Work:
        one = self._draft(1, position) + self._choose(1)
        return Work(count * one.nbytes, count * one.operations)

    def _choose(self, rows: int) -> Work:
        """The scores of all tokens behind each of some rows."""
        c = self._config.text
        return Work(c.vocab_size * c.hidden_size * self._item, 2 * rows * c.vocab_size * c.hidden_size)

    def _attention(self, layers: int, rows: int, position: int) -> Work:
        c = self._config.text
        row_bytes = 2 * layers * c.kv_heads * c.head_dim * self._item
        met = rows * position + rows * (rows + 1) // 2
        return Work((position + 2 * rows) * row_bytes, 4 * layers * c.heads * c.head_dim * met)

    def encode_images(self) -> Work:
        """Of `encode_images`."""
        c, vision = self._config, self._config.vision
        views, patches = len(c.views), c.grid[0] * c.grid[1]
        merged = views * patches // vision.merge**2
        met = views * patches * patches
        attention = Work(0, 4 * vision.depth * vision.hidden_size * met)
        ends = Work(views * math.prod(c.image_size) * 3 + merged * vision.out_hidden_size * self._item, 0)
        return (
            self._meet("visual.", lambda spec: merged if "merger" in spec.name else views * patches) + attention + ends
        )

    def denoise_begin(self, condition: int) -> Work:
        """Of `denoise_begin` with so many conditioning rows."""
        c, crosses = self._config.head, self._crossing
        found = self._meet("head.", lambda spec: condition if ".kv." in spec.name else 1, _of_begin)
        ends = condition * (4 * c.cross_width + 2 * crosses * c.width * self._item)
        return found + Work(ends, 0)

    def denoise_step(self, condition: int) -> Work:
        """Of `denoise_step` with so many conditioning rows."""
        c, crosses = self._config.head, self._crossing
        tokens = c.state_token + c.future_tokens + c.horizon

        def rows(spec: Buffer) -> int:
            return tokens if spec.name.split(".")[1].isdigit() else c.horizon

        def of_step(spec: Buffer) -> bool:
            return not _of_begin(spec) and spec.name not in ("head.modulation", "head.future", "head.time_bias")

        modulation = 2 * (c.layers + 1) * c.width * self._item
        memory = 2 * crosses * condition * c.width * self._item
        met = crosses * tokens * condition + (c.layers - crosses) * tokens * tokens
        return self._meet("head.", rows, of_step) + Work(modulation + memory, 4 * c.width * met)

    @property
    def _crossing(self) -> int:
        c = self._config.head
        return sum(c.crosses(layer) for layer in range(c.layers))

    def _meet(
        self, prefix: str, rows: Callable[[Buffer], int], wanted: Callable[[Buffer], bool] = lambda spec: True
    ) -> Work:
        """Every wanted weight below a prefix, once, and its matrices times their rows."""
        found = [spec for spec in self._weights if spec.name.startswith(prefix) and wanted(spec)]
        matrices = [spec for spec in found if spec.name.endswith(".weight") or prefix in ("text.", "mtp.")]
        products = sum(2 * rows(spec) * math.prod(spec.shape) for spec in matrices if len(spec.shape) == 2)
        return Work(sum(spec.nbytes for spec in found), products)


def _of_begin(spec: Buffer) -> bool:
    return ".kv." in spec.name or spec.name.startswith(("head.state1", "head.state2"))
