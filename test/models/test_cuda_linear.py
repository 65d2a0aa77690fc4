# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How products are shared out between blocks, as far as that needs no GPU."""

from __future__ import annotations

import pytest

linear = pytest.importorskip("flashrt_ros.models.cuda.linear", reason="needs requirements/cuda.txt")

SHAPES = [(8224, 2048), (5120, 2048), (2048, 2048), (12288, 2048), (2048, 6144), (1536, 1536), (96, 32), (7, 8)]


@pytest.mark.parametrize("multiprocessors", [20, 132])
@pytest.mark.parametrize("shape", SHAPES)
def test_blocks_that_share_out_k_find_room_side_by_side(shape, multiprocessors) -> None:
    m, k = shape
    cluster = linear.cluster_size(m, k, multiprocessors)
    assert cluster == 1 or -(-m // 64) * cluster <= 2 * multiprocessors
    assert cluster == 1 or -(-k // 32) >= cluster


def test_k_is_shared_out_where_m_is_too_small_for_the_gpu() -> None:
    assert linear.cluster_size(2048, 6144, 132) == 6
    assert linear.cluster_size(12288, 2048, 132) == 1
