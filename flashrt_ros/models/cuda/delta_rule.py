# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The gated delta rule: kernels/delta_rule.cu, kernels/delta_rule_prepare.cu and kernels/delta_rule_chunks.cu."""

from __future__ import annotations

import torch
from torch import Tensor

from flashrt_ros.models.cuda.base import CudaBase

_CHUNK, _COLUMNS = 32, 16
_PREPARED_BYTES, _VALUE_PITCH = 8080, 24
"""As in kernels/delta_rule_chunks.cuh and .cu: bytes of a Prepared, elements of a row of values."""
_STAGES = 3
"""Chunks in shared memory, where there is room for them; two otherwise."""
_FEW = 8
"""Up to so many rows go one by one."""


class CudaDeltaRule(CudaBase):
    """Few rows, and float32, one by one; many rows of bfloat16 in chunks on tensor cores."""

    def delta_rule(
        self, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, state: Tensor, length: Tensor, out: Tensor
    ) -> None:
        """See DeltaRule.delta_rule. Padding rows of out are not written."""
        (n, k_heads, k_width), (_, v_heads, v_width) = q.shape, v.shape
        _check(q, k, v, beta, g, state, out)
        strides = (q.stride(0), k.stride(0), v.stride(0))
        group = v_heads // k_heads
        grid = (v_width // _COLUMNS, v_heads)
        if n <= _FEW or q.dtype == torch.float32:
            self._row_by_row(q, k, v, beta, g, state, length, out)
            return
        count = -(-n // _CHUNK)
        prepared = self.scratch((v_heads * count, _PREPARED_BYTES), torch.uint8)
        self.cuda.launch(
            "delta_rule_prepare",
            f"delta_rule_prepare_d{k_width}",
            (count, v_heads),
            128,
            *(q, k, beta, g, length, prepared),
            *(group, *strides[:2]),
        )
        exchanged = k_width // 16 * 4096 + 2 * 3072
        stage = (2 * (k_width + 8) + _VALUE_PITCH) * _CHUNK * 2 + _PREPARED_BYTES
        stages = min(_STAGES, (self.cuda.device.properties.shared_memory - exchanged) // stage)
        self.cuda.launch(
            "delta_rule_chunks",
            f"delta_rule_chunks_d{k_width}",
            grid,
            2 * k_width + 32,
            *(q, k, v, prepared, state, length, out),
            *(v_width, group, *strides, count, stages),
            shared=exchanged + stages * stage,
        )

    def offer_delta(self, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, state: Tensor, out: Tensor) -> None:
        """See Decoding.offer_delta."""
        _check(q, k, v, beta, g, state, out)
        self._row_by_row(q, k, v, beta, g, state, None, out)

    def keep_delta(self, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, state: Tensor, accepted: Tensor) -> None:
        """See Decoding.keep_delta."""
        _check(k, k, v, beta, g, state)
        self._row_by_row(k, k, v, beta, g, state, accepted, None)

    def _row_by_row(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        beta: Tensor,
        g: Tensor,
        state: Tensor,
        length: Tensor | None,
        out: Tensor | None,
    ) -> None:
        """Without a length the state stays; without `out` it alone moves."""
        (n, k_heads, k_width), (_, v_heads, v_width) = q.shape, v.shape
        name = f"delta_rule_{'f32' if q.dtype == torch.float32 else 'bf16'}_d{k_width}"
        tensors, strides = (q, k, v, beta, g, state, length, out), (q.stride(0), k.stride(0), v.stride(0))
        grid = (v_width // _COLUMNS, v_heads)
        self.cuda.launch("delta_rule", name, grid, 64, *tensors, v_width, v_heads // k_heads, *strides, n)


def _check(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, state: Tensor, *outs: Tensor) -> None:
    """Raise TypeError for what no kernel was built for."""
    (_, _, k_width), (_, _, v_width) = q.shape, v.shape
    dtypes = [x.dtype for x in (q, k, v, *outs)]
    if len(set(dtypes)) > 1 or dtypes[0] not in (torch.float32, torch.bfloat16):
        raise TypeError(f"delta_rule: q, k, v and out of float32 or bfloat16, not {', '.join(map(str, dtypes))}")
    if any(x.dtype != torch.float32 for x in (beta, g, state)):
        raise TypeError(f"delta_rule: beta, g and state of float32, not {beta.dtype}, {g.dtype}, {state.dtype}")
    if k_width not in (32, 64, 128) or v_width % _COLUMNS:
        raise TypeError(
            f"delta_rule: keys of 32, 64 or 128 features and values of a multiple of 16, not {k_width}, {v_width}"
        )
    if not all(x.is_contiguous() for x in (beta, g, state, *outs)):
        raise TypeError("delta_rule: beta, g, state and out must be contiguous")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.stride()[1:] != (x.shape[2], 1) or x.stride(0) % 8:
            raise TypeError(f"delta_rule: heads of {name} must lie side by side, rows 16 bytes apart, not {x.stride()}")
