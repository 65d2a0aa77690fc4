# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How products of an action expert are shared out between blocks, as far as that needs no GPU."""

from __future__ import annotations

from itertools import pairwise

import pytest

flow = pytest.importorskip("flashrt_ros.models.cuda.flow", reason="needs requirements/cuda.txt")

TILES, MULTIPROCESSORS = (1, 2, 16, 40, 64, 200), (20, 132)


@pytest.mark.parametrize("multiprocessors", MULTIPROCESSORS)
@pytest.mark.parametrize("tiles", TILES)
def test_each_block_has_as_many_pairs_of_pieces_as_the_others(tiles: int, multiprocessors: int) -> None:
    for pieces in range(1, 200):
        cluster = flow.stream_cluster(tiles, pieces, multiprocessors)
        ends = [rank * pieces // cluster for rank in range(cluster + 1)]
        assert len({-(-(end - begin) // 2) for begin, end in pairwise(ends)}) == 1
        assert cluster == 1 or tiles * cluster <= multiprocessors


def test_an_expert_of_the_published_size_has_the_whole_gpu() -> None:
    shapes = {"heads": (40, 16), "out": (16, 32), "gate_up": (64, 16), "down": (16, 64)}
    assert {name: flow.stream_cluster(*shape, 132) for name, shape in shapes.items()} == {
        "heads": 3,
        "out": 8,
        "gate_up": 2,
        "down": 8,
    }
