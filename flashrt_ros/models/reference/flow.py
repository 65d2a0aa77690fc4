# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What transformers that denoise actions behind a prefix need: a shared cache, norms that depend on time, guidance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from flashrt_ros.models.reference.attention import Attention
from flashrt_ros.models.reference.dense import Activation, Dense
from flashrt_ros.models.reference.precision import wide
from flashrt_ros.models.reference.quantised import Matrix, Quantised
from flashrt_ros.models.reference.rows import Rows


@dataclass(frozen=True, slots=True)
class Given:
    """The first `rows` rows, for which row `step` of the tables counts; `start` is 0. Each is int64 [1]."""

    rows: Tensor
    step: Tensor
    start: Tensor


class Flow(Dense, Rows, Attention):
    """Tables `gain`, `bias` and `gate` are float32 [steps, width]: a row for each value of `step` (int64 [1]).

    A Matrix may be quantised; the products with one are those with its dequantised self. `step`, and the `start` of
    normed_heads, were written before the stage in which they are used: kernels read them while those ahead still run.
    """

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

    def scaled_norm(self, x: Tensor, gain: Tensor, step: Tensor, out: Tensor, eps: float) -> None:
        """Set out = gain[step] * x / rms(x), in float32 and then cast."""
        chosen = gain[int(step)]
        out.copy_(F.rms_norm(wide(x), chosen.shape, chosen, eps))

    def add_row(self, table: Tensor, step: Tensor, out: Tensor) -> None:
        """Set out = out + table[step] in every row, in float32 and then cast."""
        out.copy_(wide(out) + table[int(step)])

    def gated_add(self, x: Tensor, gate: Tensor, step: Tensor, out: Tensor) -> None:
        """Set out = out + gate[step] * x, in float32 and then cast."""
        out.copy_(wide(out) + gate[int(step)] * wide(x))

    def _plain(self, w: Matrix, dtype: torch.dtype) -> Tensor:
        """Return w, dequantised to scratch memory of `dtype` if it has to be."""
        if not isinstance(w, Quantised):
            return w
        out = self.scratch(tuple(w.shape), dtype)
        self.dequantise(w, out)
        return out

    def normed_linear(
        self, x: Tensor, gain: Tensor, step: Tensor, w: Matrix, out: Tensor, eps: float, bias: Tensor | None = None
    ) -> None:
        """Set out = (gain[step] * x / rms(x)) w^T + bias[step], for x [n, k], w [m, k] and out [n, m]."""
        h = self.scratch(tuple(x.shape), x.dtype)
        self.scaled_norm(x, gain, step, h, eps)
        self.linear(h, self._plain(w, x.dtype), out)
        if bias is not None:
            self.add_row(bias, step, out)

    def normed_heads(
        self,
        x: Tensor,
        gain: Tensor,
        step: Tensor,
        w: Matrix,
        cos: Tensor,
        sin: Tensor,
        start: Tensor,
        q_out: Tensor | None,
        keys: Tensor,
        values: Tensor,
        eps: float,
        bias: Tensor | None = None,
        length: Tensor | None = None,
    ) -> None:
        """Do rope_cache with what normed_linear makes of w [(heads + 2 kv_heads) d, k]."""
        qkv = self.scratch((x.shape[0], w.shape[0]), keys.dtype)
        self.normed_linear(x, gain, step, w, qkv, eps, bias)
        self.rope_cache(qkv.view(len(qkv), -1, keys.shape[-1]), cos, sin, start, q_out, keys, values, length)

    def normed_gelu_linear(
        self, x: Tensor, gain: Tensor, step: Tensor, w: Matrix, out: Tensor, eps: float, bias: Tensor | None = None
    ) -> None:
        """Set out = gelu(y_1) * y_2, where [y_1 | y_2] is what normed_linear makes of w [2 m, k]; out [n, m]."""
        both = self.scratch((x.shape[0], w.shape[0]), out.dtype)
        self.normed_linear(x, gain, step, w, both, eps, bias)
        self.gelu_product(both, out)

    def linear_gated_add(self, x: Tensor, w: Matrix, step: Tensor, out: Tensor, gate: Tensor | None = None) -> None:
        """Set out = out + gate[step] * (x w^T); without a gate the product itself is added."""
        plain = self._plain(w, x.dtype)
        if gate is None:
            self.linear(x, plain, out, add=out)
            return
        product = self.scratch(tuple(out.shape), out.dtype)
        self.linear(x, plain, product)
        self.gated_add(product, gate, step, out)

    def transformer_layers(
        self,
        x: Tensor,
        gains: Sequence[Tensor],
        step: Tensor,
        heads: Sequence[Matrix],
        out: Sequence[Matrix],
        gate_up: Sequence[Matrix],
        down: Sequence[Matrix],
        cos: Tensor,
        sin: Tensor,
        start: Tensor,
        end: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        eps: float,
        biases: Sequence[Tensor] | None = None,
        gates: Sequence[Tensor] | None = None,
        length: Tensor | None = None,
        given: Given | None = None,
    ) -> None:
        """Run x [n, width] through layers of attention to a cache and of a gated product, in place.

        Layer l has heads[l] for normed_heads, out[l] [width, heads * d], gate_up[l] [2 m, width], down[l] [width, m],
        and the cache keys[l], values[l]; of gains, biases and gates its part of attention has number 2 l and its gated
        product 2 l + 1. `start` and `length` are those of rope_cache, `end` that of attend_rows: at most start + n.
        Row `step` of the tables counts, but for the rows that are `given`.
        """
        n, (_, kv_heads, d) = x.shape[0], keys[0].shape
        count, mlp = heads[0].shape[0] // d - 2 * kv_heads, down[0].shape[1]
        for layer, cache in enumerate(zip(keys, values, strict=True)):
            first, second = 2 * layer, 2 * layer + 1
            bias = (None, None) if biases is None else biases[first : first + 2]
            gate = (None, None) if gates is None else gates[first : first + 2]
            q, y = self.scratch((n, count, d), x.dtype), self.scratch((n, count * d), x.dtype)
            places = (cos, sin, start)
            self.normed_heads(x, gains[first], step, heads[layer], *places, q, *cache, eps, bias[0], length)
            if given is not None:
                own, w = self.scratch(tuple(q.shape), q.dtype), heads[layer]
                self.normed_heads(x, gains[first], given.step, w, *places, own, *cache, eps, bias[0], given.rows)
                self.write_rows(own, given.start, given.rows, q)
            self.attend_rows(q, *cache, end, y)
            self._add_with_given(y, out[layer], step, x, gate[0], given)
            wide = self.scratch((n, mlp), x.dtype)
            self.normed_gelu_linear(x, gains[second], step, gate_up[layer], wide, eps, bias[1])
            if given is not None:
                own = self.scratch(tuple(wide.shape), wide.dtype)
                self.normed_gelu_linear(x, gains[second], given.step, gate_up[layer], own, eps, bias[1])
                self.write_rows(own, given.start, given.rows, wide)
            self._add_with_given(wide, down[layer], step, x, gate[1], given)

    def _add_with_given(
        self, y: Tensor, w: Matrix, step: Tensor, x: Tensor, gate: Tensor | None, given: Given | None
    ) -> None:
        if given is None:
            self.linear_gated_add(y, w, step, x, gate)
            return
        own = self.scratch(tuple(x.shape), x.dtype)
        self.copy(x, own)
        self.linear_gated_add(y, w, given.step, own, gate)
        self.linear_gated_add(y, w, step, x, gate)
        self.write_rows(own, given.start, given.rows, x)

    def stepped_linear(
        self, x: Tensor, w: Tensor, table: Tensor, step: Tensor, out: Tensor, act: Activation | None = None
    ) -> None:
        """Set out = act(x w^T + table[step]), for float32 x [n, k], w [m, k], table [steps, m] and out [n, m]."""
        bias = self.scratch((w.shape[0],), table.dtype)
        self.take_row(table, step, bias)
        self.linear(x, w, out, bias=bias, act=act)

    def finish_step(
        self,
        x: Tensor,
        gain: Tensor,
        chosen: Tensor,
        w: Tensor,
        bias: Tensor,
        eps: float,
        target: Tensor,
        weight: Tensor,
        table: Tensor,
        step: Tensor,
        dt: float,
        start: Tensor,
        locked: Tensor,
        velocity: Tensor,
        actions: Tensor,
    ) -> None:
        """Take an Euler step: read the velocity off x by normed_linear with row `chosen`, guide it, and integrate.

        The first `locked` rows of actions then are the target's; `start` is 0. Sizes are those of guide.
        """
        self.normed_linear(x, gain, chosen, w, velocity, eps, bias)
        self.guide(actions, target, weight, table, step, velocity)
        self.euler(actions, velocity, dt, actions)
        self.write_rows(target, start, locked, actions)

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
