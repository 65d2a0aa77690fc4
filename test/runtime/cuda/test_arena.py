# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from flashrt_ros.runtime.cuda.arena import Arena, ArenaFullError


@pytest.fixture
def arena() -> Arena:
    return Arena(1 << 20, 4096)


def test_blocks_are_aligned_and_apart(arena: Arena) -> None:
    a, b = arena.block(1), arena.block(300)
    assert (a.offset, b.offset) == (0, 256)
    assert b.__cuda_array_interface__["data"] == ((1 << 20) + 256, False)
    assert b.__cuda_array_interface__["shape"] == (512,)


def test_a_dropped_block_is_given_out_again(arena: Arena) -> None:
    kept = [arena.block(1024) for _ in range(4)]
    with pytest.raises(ArenaFullError, match="1 bytes are asked for, 0 of 4096 are free"):
        arena.block(1)
    del kept[1:3]
    assert arena.block(2048).offset == 1024


def test_the_peak_is_the_highest_end(arena: Arena) -> None:
    a, b = arena.block(1024), arena.block(512)
    del a
    c = arena.block(256)
    assert (c.offset, b.offset, arena.peak) == (0, 1024, 1536)


def test_what_is_returned_from_elsewhere_joins_its_neighbours(arena: Arena) -> None:
    arena.block(4096).__del__()  # as the garbage collection of another thread does
    assert arena.block(4096).offset == 0


def test_memory_goes_back_with_the_last_tensor_on_it() -> None:
    freed: list[int] = []
    arena = Arena(1 << 20, 4096, freed.append)
    kept = arena.block(16)
    del arena
    assert not freed
    del kept
    assert freed == [1 << 20]
