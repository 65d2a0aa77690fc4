# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
import torch

SHAPES = {
    "vision": (2, 196, 196, 16, 64),
    "vision with heads of 72": (1, 256, 256, 16, 72),
    "three views": (3, 256, 256, 16, 72),
    "a view of few tokens with heads of 72": (2, 100, 90, 2, 72),
    "a small vision": (2, 36, 36, 4, 32),
    "a head among its tokens": (1, 49, 49, 32, 48),
    "one row": (1, 1, 3, 2, 128),
    "heads of 24 in many blocks": (2, 65, 40, 24, 24),
    "heads of 40 in many blocks": (4, 65, 50, 12, 40),
    "heads of 80": (1, 20, 30, 2, 80),
    "heads of 80 in many blocks": (3, 64, 50, 30, 80),
    "heads of 128 in many blocks": (2, 66, 70, 20, 128),
}
"""Batch, queries, keys, heads, features."""


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_attend(gpu: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    b, n, m, heads, d = shape

    def make(t: Any) -> dict[str, Any]:
        q = t.rows(b, n, 2, heads, d)[:, :, 0]
        keys, values = t.rows(b, m, 3, heads, d)[:, :, 1:].unbind(2)
        return {"q": q, "keys": keys, "values": values, "out": t.out(b, n, heads, d)}

    gpu.check("attend", make, outputs=["out"], dtype=dtype)


@pytest.mark.parametrize("live", [0, 1, 64, 150, 512])
def test_attend_to_some_rows(gpu: Any, dtype: torch.dtype, live: int) -> None:
    def make(t: Any) -> dict[str, Any]:
        memory = t.poisoned(t.rows(512, 2 * 12 * 64), live)
        keys, values = (part.unflatten(-1, (12, 64)).unsqueeze(0) for part in memory.chunk(2, dim=-1))
        q, out = t.rows(1, 49, 12, 64), t.out(1, 49, 12, 64)
        return {"q": q, "keys": keys, "values": values, "out": out, "rows": t.scalar(live)}

    gpu.check("attend", make, outputs=["out"], dtype=dtype)
