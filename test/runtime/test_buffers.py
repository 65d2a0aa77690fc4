# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
import torch

from flashrt_ros.runtime.buffers import Buffer, BufferSet, Range


def zeros(nbytes: int, memory: str) -> torch.Tensor:
    return torch.zeros(nbytes, dtype=torch.uint8)


def test_small_state_is_one_range_and_rows_stand_behind_it() -> None:
    b = BufferSet(
        [
            Buffer("kv", (8, 4), torch.float32, "state", "context", rows="position"),
            Buffer("a", (3,), torch.float32, "state", "context"),
            Buffer("b", (1,), torch.int64, "state", "generator"),
        ],
        zeros,
    )
    assert b.small_ranges() == (Range("device", 0, 256 + 8),)
    assert b.row_ranges({"position": 2}) == (Range("device", 512, 2 * 16),)
    assert b.row_ranges({"position": 5}, {"position": 3}) == (Range("device", 512 + 3 * 16, 2 * 16),)
    assert b.row_ranges({}) == ()


def test_scopes_select_ranges() -> None:
    b = BufferSet(
        [
            Buffer("a", (64,), torch.float32, "state", "context"),
            Buffer("b", (64,), torch.float32, "state", "history"),
            Buffer("c", (64,), torch.float32, "state", "context"),
        ],
        zeros,
    )
    assert b.small_ranges(("context",)) == (Range("device", 0, 256), Range("device", 512, 256))


def test_views_share_the_arena_and_never_overlap() -> None:
    b = BufferSet(
        [Buffer("a", (3,), torch.float32, "scratch"), Buffer("b", (2, 2), torch.int64, "scratch")],
        zeros,
    )
    b["a"].fill_(1)
    b["b"].fill_(2)
    assert b["a"].tolist() == [1, 1, 1]
    assert b["b"].flatten().tolist() == [2] * 4
    assert b["a"].untyped_storage().data_ptr() == b["b"].untyped_storage().data_ptr()


def test_live_bytes_follow_the_cursor() -> None:
    b = BufferSet([Buffer("kv", (8, 2), torch.float32, "state", "context", rows="position")], zeros)
    b["kv"].copy_(torch.arange(16.0).view(8, 2))
    live = b.live_bytes("kv", {"position": 3})
    assert live.view(torch.float32).tolist() == [0, 1, 2, 3, 4, 5]
    assert b.live_bytes("kv", {}).numel() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", (2,), torch.float32, "state"), "has a scope"),
        (("x", (2,), torch.float32, "scratch", "context"), "has a scope"),
        (("x", (2,), torch.float32, "scratch", None, "position"), "live rows"),
        (("x", (0,), torch.float32, "scratch"), "empty dimension"),
    ],
)
def test_contradictory_buffers_are_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Buffer(*arguments)


def test_a_name_declared_twice_is_refused() -> None:
    spec = Buffer("x", (2,), torch.float32, "scratch")
    with pytest.raises(ValueError, match="x is declared twice"):
        BufferSet([spec, spec], zeros)
