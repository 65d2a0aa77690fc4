# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Rotary embeddings and softmax attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from flashrt_ros.models.reference.precision import wide


class Attention:
    """Attention over a cache whose length is read from memory, and over whole tensors."""

    def rope_table(
        self,
        position: Tensor,
        rope_delta: Tensor,
        offsets: Tensor,
        frequency: Tensor,
        axis: Tensor,
        cos: Tensor,
        sin: Tensor,
    ) -> None:
        """Multimodal rotary angles: cos, sin [n, half] of (position + rope_delta + offsets[axis[j], i]) * frequency[j].

        offsets is int64 [3, n] (time, height, width); axis says which of the three drives each frequency.
        """
        place = (position + rope_delta + offsets).float()
        angle = place[axis].t() * frequency
        cos.copy_(torch.cos(angle))
        sin.copy_(torch.sin(angle))

    def rope(self, x: Tensor, cos: Tensor, sin: Tensor, out: Tensor) -> None:
        """Rotate the first 2*half features of x [n, heads, d] by the angles of [n, half]; the rest passes."""
        half = cos.shape[-1]
        cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
        a, b = x[..., :half], x[..., half : 2 * half]
        rotated = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
        out[..., : 2 * half] = rotated
        out[..., 2 * half :] = x[..., 2 * half :]

    def norm_rope(self, x: Tensor, gain: Tensor, cos: Tensor, sin: Tensor, out: Tensor, eps: float) -> None:
        """Rotate gain * x / rms(x), the norm over each head."""
        normed = F.rms_norm(wide(x), gain.shape, gain, eps).to(out.dtype)
        self.rope(normed, cos, sin, out)

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
        """Causal attention of q [n, heads, d] at position + i over a cache [rows, kv_heads, d], times sigmoid(gate).

        The rows of q are already in the cache. gate is [n, heads, d], out [n, heads * d]; each key-value head
        serves heads / kv_heads neighbouring query heads. Rows of the cache from position + length on are not read.
        """
        n, heads, width = q.shape
        kv_heads = keys.shape[1]
        first, live = int(position), int(position) + int(length)
        grouped = q.view(n, kv_heads, -1, width).permute(1, 2, 0, 3).reshape(kv_heads, -1, width)
        scores = torch.bmm(grouped, keys[:live].permute(1, 2, 0)).mul_(width**-0.5)
        row = torch.arange(n, device=q.device)
        future = torch.arange(live - first, device=q.device) > row[:, None]
        scores.view(kv_heads, heads // kv_heads, n, live)[..., first:].masked_fill_(future, float("-inf"))
        weights = torch.softmax(wide(scores), dim=-1).to(q.dtype)
        y = torch.bmm(weights, values[:live].transpose(0, 1)).view(kv_heads, -1, n, width)
        torch.mul(
            y.permute(2, 0, 1, 3),
            torch.sigmoid(gate).view(n, kv_heads, -1, width),
            out=out.view(n, kv_heads, -1, width),
        )

    def attend(self, q: Tensor, keys: Tensor, values: Tensor, out: Tensor, rows: Tensor | None = None) -> None:
        """Bidirectional attention of q [b, n, heads, d] over keys and values [b, m, heads, d]; out [b, n, heads, d].

        With `rows` (int64 [1]) only that many leading keys count; over none the result is zero.
        """
        if rows is not None:
            live = int(rows)
            keys, values = keys[:, :live], values[:, :live]
        q, keys, values = q.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
        if keys.shape[2] == 0:
            out.zero_()
            return
        out.copy_(F.scaled_dot_product_attention(q, keys, values).transpose(1, 2))
