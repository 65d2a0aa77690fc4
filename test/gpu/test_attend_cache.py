# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
import torch

SHAPES = {
    "one row": (1, 1, 300, 8, 2, 256),
    "a few rows, padding": (8, 5, 700, 8, 2, 256),
    "an empty cache": (24, 24, 0, 4, 1, 64),
    "rows that see one tile of keys and rows that see two": (8, 8, 60, 8, 2, 256),
    "a segment": (64, 61, 1000, 8, 2, 256),
    "a prefill": (520, 519, 77, 8, 2, 256),
    "a prefill without splits": (2048, 2000, 200, 8, 2, 256),
    "heads of 40": (24, 17, 130, 4, 1, 40),
    "heads of 128, no group": (100, 99, 65, 3, 3, 128),
    "a few rows of heads of 64": (5, 5, 40, 4, 2, 64),
    "a few rows of heads of 128": (4, 3, 65, 3, 3, 128),
}
"""Rows, live rows, position, heads, key-value heads, features."""


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_attend_cache(gpu: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    n, live, position, heads, kv_heads, d = shape
    used, room = position + live, position + n + 2000

    def make(t: Any) -> dict[str, Any]:
        q_gate = t.rows(n, heads, 2 * d)
        return {
            "q": t.poisoned(t.rows(n, heads, d), live),
            "keys": t.poisoned(t.rows(room, kv_heads, d), used),
            "values": t.poisoned(t.rows(room, kv_heads, d), used),
            "position": t.scalar(position),
            "length": t.scalar(live),
            "gate": t.poisoned(q_gate, live)[..., d:],
            "out": t.out(n, heads * d),
        }

    gpu.check("attend_cache", make, outputs=["out"], dtype=dtype, live={"out": slice(live)})


def test_large_scores_stay_finite(gpu: Any) -> None:
    def make(t: Any) -> dict[str, Any]:
        return {
            "q": t.rows(8, 8, 256, scale=30.0),
            "keys": t.rows(400, 2, 256, scale=30.0),
            "values": t.rows(400, 2, 256),
            "position": t.scalar(300),
            "length": t.scalar(8),
            "gate": t.rows(8, 8, 256),
            "out": t.out(8, 2048),
        }

    gpu.check("attend_cache", make, outputs=["out"], dtype=torch.bfloat16)
