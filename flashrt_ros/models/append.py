# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The steps that append a segment: which stages run, and what their inputs hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from flashrt_ros.models.prompt import Segment
from flashrt_ros.models.qwen3_5_text import LENGTH, ROPE_LENGTH, ROPE_OFFSETS
from flashrt_ros.runtime.backend import Inputs
from flashrt_ros.runtime.buffers import Buffer
from flashrt_ros.runtime.plan import Step, split

TOKENS, IMAGE_ROWS = "tokens", "image_rows"
SEGMENT_START, RESTART = "segment_start", "restart"


def append_inputs(largest: int) -> list[Buffer]:
    """Inputs of append stages of up to `largest` rows.

    `length` rows are valid; they begin at row `segment_start` of their segment and take `rope_length` rotary
    positions; `restart` is 1 in the first stage of a segment that rewrites the context from its first row.
    """
    scalars = (LENGTH, ROPE_LENGTH, SEGMENT_START, RESTART)
    return [
        Buffer(TOKENS, (largest,), torch.int64, "input"),
        Buffer(IMAGE_ROWS, (largest,), torch.int64, "input"),
        Buffer(ROPE_OFFSETS, (3, largest), torch.int64, "input"),
        *(Buffer(name, (1,), torch.int64, "input") for name in scalars),
    ]


def append_steps(segment: Segment, stage_sizes: Sequence[int], restart: bool = False, behind: int = 0) -> list[Step]:
    """One step for each stage that the segment's length is split over.

    `restart`: the context begins with it. `behind`: it goes on behind so many rows that were appended before.
    """
    steps, start = [], 0
    for size, rows in split(segment.rows, stage_sizes):
        steps.append(Step(f"append_{size}", _fill(segment, start, size, rows, restart and start == 0, behind)))
        start += rows
    return steps


def _fill(segment: Segment, start: int, size: int, rows: int, restart: bool, behind: int) -> Callable[[Inputs], None]:
    """Write the inputs for rows [start, start + rows) of a segment.

    Rotary offsets count from the segment's start, so only the stage that ends it moves the rotary cursor.
    """
    last = start + rows == segment.rows
    scalars = {
        LENGTH: rows,
        ROPE_LENGTH: segment.rope_length if last else 0,
        SEGMENT_START: behind + start,
        RESTART: int(restart),
    }
    columns = ((TOKENS, segment.tokens, 0), (IMAGE_ROWS, segment.image_rows, -1), (ROPE_OFFSETS, segment.offsets, 0))

    def fill(b: Inputs) -> None:
        for name, value in scalars.items():
            b[name].fill_(value)
        for name, values, padding in columns:
            b[name][..., :rows].copy_(torch.from_numpy(values[..., start : start + rows]))
            b[name][..., rows:size].fill_(padding)

    return fill
