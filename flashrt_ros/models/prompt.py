# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Segments: which rows an instruction or an observation adds, and where they stand for the rotary embedding."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tokenizers
from numpy.typing import NDArray

from flashrt_ros.models.config import HybridConfig
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

Encode = Callable[[str], Sequence[int]]

_PLACES = re.compile(r"(\{instruction\}|\{images\})")


def read_encoder(path: Path) -> Encode:
    """The tokenizer of a tokenizer.json, without padding, truncation or tokens added around a text."""
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    # The library raises plain Exception for a file that it cannot read.
    except Exception as error:
        raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"{path}: not a tokenizer.json: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of one append.

    tokens int64 [rows]; image_rows int64 [rows]: the row of the encoded images that stands there, or -1 for a token;
    offsets int64 [3, rows]: rotary positions (time, height, width) from the segment's start; rope_length: how many
    rotary positions the segment takes.
    """

    tokens: NDArray[np.int64]
    image_rows: NDArray[np.int64]
    offsets: NDArray[np.int64]
    rope_length: int

    @property
    def rows(self) -> int:
        """How many rows the segment takes."""
        return len(self.tokens)


class Prompt:
    """Builds the segments of a policy from the prompts in its config."""

    def __init__(self, config: HybridConfig, encode: Encode) -> None:
        """`encode` turns the fixed text of a prompt into token ids, special tokens included."""
        self._config = config
        if config.layout == "append":
            self._instruct = _pieces("instruct", config.instruct_prompt, ["{instruction}"], encode)
            self._observe = _pieces("observe", config.observe_prompt, ["{images}"], encode)
        else:
            self._observe = _pieces("observe", config.observe_prompt, ["{instruction}", "{images}"], encode)

    def instruct(self, tokens: NDArray[np.int64]) -> Segment:
        """The segment of an instruction (layout "append")."""
        return self._build(self._instruct, tokens)

    def observe(self, tokens: NDArray[np.int64]) -> Segment:
        """The segment of an observation; `tokens` is the instruction, for a layout that repeats it."""
        return self._build(self._observe, tokens)

    def _build(self, pieces: Sequence[str | tuple[int, ...]], instruction: NDArray[np.int64]) -> Segment:
        parts: list[Segment] = []
        for piece in pieces:
            if piece == "{images}":
                parts += self._images()
            elif piece == "{instruction}":
                parts.append(text_segment(instruction))
            else:
                parts.append(text_segment(np.asarray(piece, dtype=np.int64)))
        starts = np.cumsum([0] + [part.rope_length for part in parts])
        return Segment(
            tokens=np.concatenate([part.tokens for part in parts]),
            image_rows=np.concatenate([part.image_rows for part in parts]),
            offsets=np.concatenate([part.offsets + start for part, start in zip(parts, starts, strict=False)], axis=1),
            rope_length=int(starts[-1]),
        )

    def _images(self) -> list[Segment]:
        height, width = self._config.image_rows
        tokens = self._config.image_tokens
        row, column = np.divmod(np.arange(height * width), width)
        parts = []
        for view in range(len(self._config.views)):
            image = Segment(
                tokens=np.full(height * width, tokens.pad, dtype=np.int64),
                image_rows=view * height * width + np.arange(height * width),
                offsets=np.stack((np.zeros_like(row), row, column)),
                rope_length=max(height, width),
            )
            parts += [text_segment(np.array([tokens.start])), image, text_segment(np.array([tokens.end]))]
        return parts


def text_segment(tokens: NDArray[np.int64]) -> Segment:
    """The segment of plain text: one rotary position a row."""
    count = len(tokens)
    return Segment(tokens, np.full(count, -1, dtype=np.int64), np.tile(np.arange(count), (3, 1)), count)


def _pieces(name: str, prompt: str, wanted: Sequence[str], encode: Encode) -> list[str | tuple[int, ...]]:
    """Token ids of the fixed text, and the places for images and instruction, in order."""
    parts = [part for part in _PLACES.split(prompt) if part]
    places = sorted(part for part in parts if _PLACES.fullmatch(part))
    if places != sorted(wanted):
        raise FlashrtError(
            ErrorCode.BAD_CHECKPOINT,
            f"config.json.flashrt.prompt.{name}: expected {' and '.join(wanted)} once each, found {prompt!r}",
        )
    return [part if _PLACES.fullmatch(part) else tuple(encode(part)) for part in parts]
