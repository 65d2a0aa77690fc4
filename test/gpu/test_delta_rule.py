# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
import torch

SHAPES = {
    "one row": (1, 1, 16, 16, 128, 128),
    "a few rows, padding": (8, 5, 16, 16, 128, 128),
    "no row": (8, 0, 16, 16, 128, 128),
    "part of a chunk": (24, 19, 2, 4, 64, 64),
    "a segment": (64, 64, 16, 16, 128, 128),
    "no row of a segment": (64, 0, 2, 4, 64, 64),
    "a prefill": (512, 477, 4, 8, 128, 128),
    "narrow heads": (64, 33, 2, 2, 32, 48),
}
"""Rows, live rows, key heads, value heads, their features."""


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("memory", [2.0, 0.01], ids=["forgets", "remembers"])
def test_delta_rule(gpu: Any, dtype: torch.dtype, shape: tuple[int, ...], memory: float) -> None:
    n, live, k_heads, v_heads, dk, dv = shape
    widths = (k_heads * dk, k_heads * dk, v_heads * dv)

    def make(t: Any) -> dict[str, Any]:
        q, k, v = t.poisoned(t.rows(n, sum(widths)), live).split(widths, dim=-1)
        return {
            "q": q.unflatten(-1, (k_heads, dk)),
            "k": k.unflatten(-1, (k_heads, dk)),
            "v": v.unflatten(-1, (v_heads, dv)),
            "beta": t.poisoned(torch.sigmoid(t.f32(n, v_heads)), live),
            "g": t.poisoned(-memory * t.f32(n, v_heads).abs(), live),
            "state": t.f32(v_heads, dk, dv, scale=0.3),
            "length": t.scalar(live),
            "out": t.out(n, v_heads, dv),
        }

    gpu.check("delta_rule", make, outputs=["state", "out"], dtype=dtype, live={"out": slice(live)})
