# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How many rows are shared out between blocks, as far as that needs no GPU."""

from __future__ import annotations

import pytest

many_rows = pytest.importorskip("flashrt_ros.models.cuda.many_rows", reason="needs requirements/cuda.txt")


@pytest.mark.parametrize("n", [160, 276, 304, 400, 401, 532, 560, 788, 816, 3000])
def test_a_cluster_of_blocks_shares_out_rows_with_few_left_over(n) -> None:
    rows = many_rows.tile_rows(n)
    tiles = -(-n // (2 * rows))
    assert tiles == -(-n // 400)
    assert n <= 2 * rows * tiles <= 1.15 * n + 80


@pytest.mark.parametrize(
    ("tiles", "keys", "count"), [(18, 6, 5), (34, 10, 3), (50, 14, 2), (3, 2, 2), (1, 30, 8), (500, 9, 1)]
)
def test_keys_are_shared_out_while_all_clusters_run_at_once(tiles, keys, count) -> None:
    assert many_rows.key_shares(tiles, keys, 132) == count
