# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Demonstrations as rows of the policy's context: the very segments that a session appends, and what is to be said."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.demo.demonstrations import MAX_OBSERVATIONS, Demonstration, Instruct, Observe
from flashrt_ros.models.config import HybridConfig
from flashrt_ros.models.prompt import Encode, Prompt, Segment

MAX_ROWS = 576
SAY_PROMPT = "<|im_start|>assistant\n"
SAY_END = "<|im_end|>"
NOTHING = -1
"""A row without an image, a label or an observation."""

_NO_TOKENS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False, slots=True)
class Sequence:
    """One context, padded: int16 arrays.

    Attributes:
        tokens: [MAX_ROWS].
        image_rows: [MAX_ROWS]; row of the sequence's encoded images that stands there, or NOTHING.
        rope: [3, MAX_ROWS]; rotary positions (time, height, width).
        labels: [MAX_ROWS]; the token that the policy should say behind a row, or NOTHING.
        first_rows: [MAX_OBSERVATIONS]; where the segment of each observation begins, or NOTHING.
        observed: [MAX_OBSERVATIONS]; number of each observation in its demonstration, or NOTHING.
        rows: how many count.
    """

    tokens: NDArray[np.int16]
    image_rows: NDArray[np.int16]
    rope: NDArray[np.int16]
    labels: NDArray[np.int16]
    first_rows: NDArray[np.int16]
    observed: NDArray[np.int16]
    rows: int


class SequenceBuilder:
    """Lays demonstrations out for one policy."""

    def __init__(self, config: HybridConfig, encode: Encode) -> None:
        """`config` must have the layout "append"."""
        self._config = config
        self._encode = encode
        self._prompt = Prompt(config, encode)
        self._image_rows = len(config.views) * config.image_rows[0] * config.image_rows[1]
        self.rows_to_observe = self._prompt.observe(_NO_TOKENS).rows

    def build(self, demonstration: Demonstration) -> Sequence:
        """Lay out a demonstration's events.

        Raises:
            ValueError: they take more than MAX_ROWS rows or MAX_OBSERVATIONS observations.
        """
        segments: list[Segment] = []
        labels: list[NDArray[np.int64]] = []
        first_rows: list[int] = []
        observed: list[int] = []
        for event in demonstration.events:
            start = sum(segment.rows for segment in segments)
            if isinstance(event, Observe):
                segment = self._prompt.observe(_NO_TOKENS)
                shift = len(observed) * self._image_rows
                shifted = np.where(segment.image_rows >= 0, segment.image_rows + shift, NOTHING)
                segment = Segment(segment.tokens, shifted, segment.offsets, segment.rope_length)
                first_rows.append(start)
                observed.append(event.index)
                labels.append(np.full(segment.rows, NOTHING))
            elif isinstance(event, Instruct):
                text = self._config.instruction_template.replace("{instruction}", event.text)
                segment = self._prompt.instruct(np.array(self._encode(text), dtype=np.int64))
                labels.append(np.full(segment.rows, NOTHING))
            else:
                segment, said = self._say(event.text)
                labels.append(said)
            segments.append(segment)
        starts = np.cumsum([0] + [segment.rope_length for segment in segments])
        rope = [segment.offsets + start for segment, start in zip(segments, starts, strict=False)]
        return Sequence(
            tokens=_pad(np.concatenate([segment.tokens for segment in segments]), MAX_ROWS, 0),
            image_rows=_pad(np.concatenate([segment.image_rows for segment in segments]), MAX_ROWS, NOTHING),
            rope=_pad(np.concatenate(rope, axis=1), MAX_ROWS, 0),
            labels=_pad(np.concatenate(labels), MAX_ROWS, NOTHING),
            first_rows=_pad(np.array(first_rows), MAX_OBSERVATIONS, NOTHING),
            observed=_pad(np.array(observed), MAX_OBSERVATIONS, NOTHING),
            rows=sum(segment.rows for segment in segments),
        )

    def _say(self, text: str) -> tuple[Segment, NDArray[np.int64]]:
        prompt = self._encode(SAY_PROMPT)
        tokens = np.array([*prompt, *self._encode(text + SAY_END), *self._encode("\n")], dtype=np.int64)
        labels = np.full(len(tokens), NOTHING)
        labels[len(prompt) - 1 : -2] = tokens[len(prompt) : -1]
        count = len(tokens)
        offsets = np.tile(np.arange(count), (3, 1))
        return Segment(tokens, np.full(count, NOTHING), offsets, count), labels


def _pad(values: NDArray[np.int64], length: int, value: int) -> NDArray[np.int16]:
    missing = length - values.shape[-1]
    if missing < 0:
        raise ValueError(f"{values.shape[-1]} entries where {length} are room for")
    width = [(0, 0)] * (values.ndim - 1) + [(0, missing)]
    return np.pad(values, width, constant_values=value).astype(np.int16)
