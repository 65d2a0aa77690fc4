# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What transformers that denoise actions behind a prefix need: a shared cache, norms that depend on time, guidance."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from flashrt_ros.models.reference.attention import Attention
from flashrt_ros.models.reference.dense import Dense
from flashrt_ros.models.reference.precision import wide
from flashrt_ros.models.reference.rows import Rows


class Flow(Dense, Rows, Attention):
    """Tables of modulations are float32 [steps, 3, width]: gain, shift and gate of each step."""

    def gelu_product(self, x: Tensor, out: Tensor) -> None:
        """Set out = gelu(gate) * up for x = [gate | up], gelu by its tanh approximation."""
        gate, up = x.chunk(2, dim=-1)
        torch.mul(F.gelu(gate, approximate="tanh"), up, out=out)

    def attend_rows(self, q: Tensor, keys: Tensor, values: Tensor, end: Tensor, out: Tensor) -> None:
        """Attention of q [n, heads, d] to the first `end` rows of a cache [rows, kv_heads, d]; out [n, heads * d].

        Every query sees all of them; each key-value head serves heads / kv_heads neighbouring query heads.
        """
        live, (_, heads, width), kv_heads = int(end), q.shape, keys.shape[1]
        k, v = (part[:live].transpose(0, 1).repeat_interleave(heads // kv_heads, dim=0) for part in (keys, values))
        y = F.scaled_dot_product_attention(q.transpose(0, 1), k, v)
        out.view(-1, heads, width).copy_(y.transpose(0, 1))

    def rope_cache(
        self,
        qkv: Tensor,
        cos: Tensor,
        sin: Tensor,
        start: Tensor,
        q_out: Tensor | None,
        keys: Tensor,
        values: Tensor,
        length: Tensor | None = None,
    ) -> None:
        """Rotate q to q_out; rotate k, and write k and v at rows `start` + i of a cache, for i < length (all without).

        qkv [n, heads + 2 kv_heads, d] holds q, k and v; without q_out, k and v alone. Row i of it stands at row
        start + i of the tables cos, sin float32 [rows, d / 2].
        """
        n, first, kv_heads = qkv.shape[0], int(start), keys.shape[1]
        cos, sin = cos[first : first + n], sin[first : first + n]
        q, k, v = qkv.split((qkv.shape[1] - 2 * kv_heads, kv_heads, kv_heads), dim=1)
        if q_out is not None:
            self.rope(q, cos, sin, q_out)
        live = n if length is None else int(length)
        self.rope(k[:live], cos[:live], sin[:live], keys[first : first + live])
        values[first : first + live] = v[:live]

    def modulated_norm(self, x: Tensor, table: Tensor, step: Tensor, out: Tensor, eps: float) -> None:
        """Set out = gain * x / rms(x) + shift with those of table[step], in float32 and then cast."""
        gain, shift, _ = table[int(step)].unbind(0)
        out.copy_(F.rms_norm(wide(x), gain.shape, gain, eps) + shift)

    def gated_add(self, y: Tensor, table: Tensor, step: Tensor, x: Tensor) -> None:
        """Set x = x + gate * y with the gate of table[step], in float32 and then cast."""
        x.copy_(wide(x) + table[int(step), 2] * wide(y))

    def guide(self, x: Tensor, target: Tensor, weight: Tensor, table: Tensor, step: Tensor, velocity: Tensor) -> None:
        """Bend the velocity so that row i of the result comes near target[i], as hard as weight[i] says.

        For table[step] = (t, strength), float32 [steps, 2]: x1 = x - t * velocity is where x is going to, and
        velocity -= strength * weight[i] * (target - x1). x, target and velocity are float32 [n, width], weight
        float32 [n]; rows of weight 0 stay as they are. Real-time chunking (Black et al., arXiv 2506.07339) with the
        Jacobian of x1 taken for the identity.
        """
        time, strength = table[int(step)].unbind(0)
        bent = velocity - strength * weight[:, None] * (target - (x - time * velocity))
        velocity.copy_(torch.where(weight[:, None] == 0, velocity, bent))
