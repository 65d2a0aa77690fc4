# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Softmax attention: kernels/attend_cache.cu, attend.cu, and those of the same names for GPUs with warpgroups."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from flashrt_ros.models.cuda.base import CudaBase

_KEY_TILE = 64
"""Keys of a step of kernels/attend_cache.cu."""
_PLAIN_THREADS, _PLAIN_WIDTH = 256, 256
_CACHE_WIDTHS, _WIDTHS = (64, 128, 256), (32, 48, 64, 80, 128)
"""Head sizes that there are bfloat16 kernels for; others are padded to the next."""
_FEW, _HOPPER_FROM = 32, 32
"""Up to so many packed rows tiles of 16 are faster than those of 64; beyond so many tiles of 128 are, on sm_90a."""

_VIEW_WIDTH, _VIEW_KEYS, _VIEW_ROWS, _VIEW_THREADS, _VIEW_SHARED = 72, 256, 64, 128, 86 << 10
"""Of kernels/attend_view_hopper.cu: features of a head, most keys, rows of a block."""


@dataclass(frozen=True, slots=True)
class _CacheKernel:
    """A kernel of attend_cache: rows of its tile, threads, bytes of shared memory, blocks on a multiprocessor."""

    source: str
    name: str
    rows: int
    threads: int
    shared: int
    blocks: int


class CudaAttend(CudaBase):
    """Attention on tensor cores in bfloat16, one block a row in float32."""

    def attend_cache(
        self,
        q: Tensor,
        keys: Tensor,
        values: Tensor,
        position: Tensor,
        length: Tensor,
        gate: Tensor,
        out: Tensor,
    ) -> None:
        """See Attention.attend_cache. With few rows the keys are split over blocks; padding rows are not written."""
        n, heads, width = q.shape
        kv_heads = keys.shape[1]
        _check("attend_cache", width, q, keys, values, gate, out)
        if not (q.is_contiguous() and keys.is_contiguous() and values.is_contiguous() and out.is_contiguous()):
            raise TypeError("attend_cache: q, keys, values and out must be contiguous")
        gate_row, gate_head, _ = gate.stride()
        sizes = (heads // kv_heads, kv_heads, width, gate_row, gate_head)
        if q.dtype == torch.float32:
            tensors = (q, keys, values, position, length, gate, out)
            self.cuda.launch("attend_cache", "attend_cache_f32", (n, heads), _PLAIN_THREADS, *tensors, *sizes)
            return
        packed = n * heads // kv_heads
        kernel = self._cache_kernel(packed, width)
        tiles = -(-packed // kernel.rows)
        resident = kernel.blocks * self.cuda.multiprocessors
        splits = max(1, min(resident // (tiles * kv_heads), -(-keys.shape[0] // _KEY_TILE)))
        parts = stats = None
        if splits > 1:
            parts = self.scratch((kv_heads * packed * splits, width), torch.float32)
            stats = self.scratch((kv_heads * packed * splits, 2), torch.float32)
        self.cuda.launch(
            kernel.source,
            kernel.name,
            (tiles, kv_heads, splits),
            kernel.threads,
            *(q, keys, values, position, length, gate, out, parts, stats),
            *(n, *sizes, splits),
            shared=kernel.shared,
        )
        if splits > 1:
            lanes = next(lanes for lanes in (1, 2, 4, 8, 16) if splits <= 8 * lanes or lanes == 16)
            self.cuda.launch(
                "attend_cache",
                "attend_cache_combine_bf16",
                (-(-packed * lanes // 16), kv_heads, -(-width // 64)),
                (16, lanes, 16 // lanes),
                *(position, length, gate, out, parts, stats),
                *(n, *sizes, splits, kernel.rows),
            )

    def _cache_kernel(self, packed: int, width: int) -> _CacheKernel:
        """Which kernel takes so many rows (those of a key-value head's queries together) of a head size."""
        if packed > _HOPPER_FROM and width == 256 and self.cuda.capability == (9, 0):
            return _CacheKernel("attend_cache_hopper", "attend_cache_hopper_bf16_d256", 128, 256, 192 << 10, 1)
        padded = _padded("attend_cache", width, _CACHE_WIDTHS)
        kind, rows = ("few_", 16) if packed <= _FEW else ("", 64)
        shared = (2 * _KEY_TILE + rows) * (padded + 8) * 2
        return _CacheKernel("attend_cache", f"attend_cache_{kind}bf16_d{padded}", rows, 128, shared, 2)

    def attend(self, q: Tensor, keys: Tensor, values: Tensor, out: Tensor, rows: Tensor | None = None) -> None:
        """See Attention.attend."""
        batch, n, heads, width = q.shape
        _check("attend", width, q, keys, values, out)
        strides = [stride for x in (q, keys, values, out) for stride in x.stride()[:3]]
        arguments = (q, keys, values, out, rows, n, keys.shape[1], width, *strides)
        if q.dtype == torch.float32:
            self.cuda.launch("attend", "attend_f32", (n, heads, batch), _PLAIN_THREADS, *arguments)
            return
        if self.cuda.capability == (9, 0) and width == _VIEW_WIDTH and keys.shape[1] <= _VIEW_KEYS and rows is None:
            sizes = (n, keys.shape[1], *strides)
            grid, shared = (-(-n // _VIEW_ROWS), heads, batch), _VIEW_SHARED
            name = "attend_view_hopper"
            self.cuda.launch(name, name, grid, _VIEW_THREADS, q, keys, values, out, *sizes, shared=shared)
            return
        padded = _padded("attend", width, _WIDTHS)
        many = batch * heads * -(-n // 64) >= self.cuda.multiprocessors // 2
        keys_a_step = 128 if padded <= 64 else 64
        kind, tile, threads = ("", 64, 256) if many else ("few_", 16, 2 * keys_a_step)
        self.cuda.launch(
            "attend",
            f"attend_{kind}bf16_d{padded}",
            (-(-n // tile), heads, batch),
            threads,
            *arguments,
            shared=(4 * keys_a_step + tile) * (padded + 8) * 2,
        )


def _check(name: str, width: int, *tensors: Tensor) -> None:
    """Raise TypeError for what no kernel was built for."""
    dtypes = [x.dtype for x in tensors]
    if len(set(dtypes)) > 1 or dtypes[0] not in (torch.float32, torch.bfloat16):
        raise TypeError(f"{name}: float32 or bfloat16 throughout, not {', '.join(map(str, dtypes))}")
    if width % 8 or width > _PLAIN_WIDTH:
        raise TypeError(f"{name}: heads of a multiple of 8 up to {_PLAIN_WIDTH} features, not {width}")
    if dtypes[0] == torch.bfloat16 and any(stride % 8 for x in tensors for stride in x.stride()[:-1]):
        raise TypeError(f"{name}: strides of {[x.stride() for x in tensors]} elements are not multiples of 16 bytes")
    if any(x.stride(-1) != 1 for x in tensors):
        raise TypeError(f"{name}: the features of a head must lie side by side")


def _padded(name: str, width: int, widths: tuple[int, ...]) -> int:
    """The smallest head size that has a kernel and holds `width`."""
    for padded in widths:
        if width <= padded:
            return padded
    raise TypeError(f"{name}: heads of at most {widths[-1]} features in bfloat16, not {width}")
