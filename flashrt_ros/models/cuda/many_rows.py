# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Many rows at once, where there are warpgroups: kernels/gated_linear_hopper.cu and attend_rows_hopper.cu."""

from __future__ import annotations

import torch
from torch import Tensor

from flashrt_ros.models.cuda.base import CudaBase
from flashrt_ros.models.cuda.layout import ceil_div
from flashrt_ros.runtime.cuda.tile_map import TensorMap

_ROWS = (104, 120, 136, 152, 176, 200)
"""Rows of x of a block that the gated product is compiled for."""

_MANY = 160
"""From so many rows on the gated product is faster than others."""

_FEATURES, _PIECE, _WEIGHT_ROWS = 128, 64, 64
_ROW_BLOCKS, _FEATURE_BLOCKS = 2, 2
"""Blocks of a cluster, by rows and by features."""

_THREADS, _SHARED = 384, 227 << 10

_HEAD, _PACKED, _KEYS, _CLUSTER = 256, 128, 64, 8
"""Of attention: features of a head, packed rows of a block, keys of a step, most shares of the keys."""

_ATTEND_THREADS, _ATTEND_SHARED = 256, 192 << 10
_GROUP = 16


class CudaManyRows(CudaBase):
    """What some operations of `Flow` do with many rows."""

    def multiplies_gated(self, x: Tensor, w: Tensor, out: Tensor) -> bool:
        """Whether gelu_linear takes these."""
        (n, k), m = x.shape, out.shape[1]
        whole = all(part.dtype == torch.bfloat16 and part.is_contiguous() for part in (x, w, out))
        fits = n >= _MANY and k % _PIECE == 0 and m % (_FEATURES * _FEATURE_BLOCKS) == 0
        return self.cuda.capability == (9, 0) and whole and fits

    def gelu_linear(self, x: Tensor, w: Tensor, out: Tensor) -> None:
        """Set out = gelu(x gate^T) * (x up^T) for x [n, k], w = [gate; up] [2 m, k] and out [n, m]."""
        (n, k), m = x.shape, out.shape[1]
        rows = tile_rows(n)
        blocks = _ROW_BLOCKS * _FEATURE_BLOCKS
        tiles = m // (_FEATURES * _FEATURE_BLOCKS) * ceil_div(n, _ROW_BLOCKS * rows)
        turns = ceil_div(tiles, self.cuda.multiprocessors // blocks)
        grid = blocks * ceil_div(tiles, turns)
        maps, options = (TensorMap(x, rows), TensorMap(w, _WEIGHT_ROWS)), {"shared": _SHARED, "cluster": blocks}
        self.cuda.launch("gated_linear_hopper", f"gelu_linear_{rows}", grid, _THREADS, *maps, out, n, m, k, **options)

    def attends_many(self, q: Tensor) -> bool:
        """Whether attend_many takes these heads."""
        return self.cuda.capability == (9, 0) and q.dtype == torch.bfloat16 and q.shape[2] == _HEAD

    def attend_many(self, q: Tensor, keys: Tensor, values: Tensor, end: Tensor, out: Tensor) -> None:
        """See Flow.attend_rows. The keys are shared out over as many blocks as run at the same time."""
        (n, heads, _), kv_heads = q.shape, keys.shape[1]
        tiles = ceil_div(n * heads // kv_heads, _PACKED)
        count = key_shares(tiles * kv_heads, ceil_div(keys.shape[0], _KEYS), self.cuda.multiprocessors)
        arguments = (q, keys, values, end, out, n, heads, kv_heads, count)
        options = {"shared": _ATTEND_SHARED, "cluster": count}
        source = "attend_rows_hopper"
        self.cuda.launch(source, source, (tiles * count, kv_heads), _ATTEND_THREADS, *arguments, **options)


def tile_rows(n: int) -> int:
    """Rows of a block, of which an even number shares out n: as few as will do without more blocks."""
    return next(rows for rows in _ROWS if rows * _ROW_BLOCKS * ceil_div(n, _ROW_BLOCKS * _ROWS[-1]) >= n)


def key_shares(tiles: int, keys: int, multiprocessors: int) -> int:
    """Blocks of a cluster that share out `keys` steps: as many as leave room for all `tiles` clusters at once.

    A cluster runs within a group of multiprocessors, of which each has 16 at least.
    """
    groups = multiprocessors // _GROUP
    return max((count for count in range(1, min(_CLUSTER, keys) + 1) if tiles <= groups * (_GROUP // count)), default=1)
