# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How products are shared out between blocks, as far as that needs no GPU."""

from __future__ import annotations

import pytest

linear = pytest.importorskip("flashrt_ros.models.cuda.linear", reason="needs requirements/cuda.txt")

SHAPES = [(8224, 2048), (5120, 2048), (2048, 2048), (12288, 2048), (2048, 6144), (1536, 1536), (96, 32), (7, 8)]


@pytest.mark.parametrize("multiprocessors", [20, 132])
@pytest.mark.parametrize("shape", SHAPES)
def test_tiling_takes_no_longer_than_one_block_for_all_of_k(shape, multiprocessors) -> None:
    m, k = shape

    def steps(height, cluster):
        blocks = -(-m // (64 * height)) * cluster
        return -(-blocks // multiprocessors) * height * -(-k // (32 * cluster))

    height, cluster = linear.tiling(m, k, multiprocessors, range(1, 9))
    assert steps(height, cluster) <= min(steps(1, 1), steps(2, 1))
    assert cluster <= -(-k // 32)


def test_tiling_shares_out_k_where_m_is_too_small_for_the_gpu() -> None:
    assert linear.tiling(2048, 2048, 132, range(1, 9))[1] > 1
    assert linear.tiling(2048, 2048, 132, range(1, 2))[1] == 1
