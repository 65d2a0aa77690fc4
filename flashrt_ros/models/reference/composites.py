# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Operations made of simpler ones, which a backend may run at once."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from flashrt_ros.models.reference.attention import Attention
from flashrt_ros.models.reference.decoding import Decoding
from flashrt_ros.models.reference.delta_rule import DeltaRule
from flashrt_ros.models.reference.dense import Dense
from flashrt_ros.models.reference.rows import Rows


class Composites(Dense, Rows, Attention, DeltaRule, Decoding):
    """Each body says what the operation does."""

    def embed_rows(
        self, tokens: Tensor, table: Tensor, length: Tensor, index: Tensor, source: Tensor, out: Tensor
    ) -> None:
        """Embed tokens, and put rows of `source` where index[i] >= 0."""
        self.embed(tokens, table, length, out)
        self.replace_rows(index, source, out)

    def rope_kv(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        q_gain: Tensor,
        k_gain: Tensor,
        cos: Tensor,
        sin: Tensor,
        position: Tensor,
        length: Tensor,
        q_out: Tensor,
        keys: Tensor,
        values: Tensor,
        eps: float,
    ) -> None:
        """Norm and rotate q to q_out and k; write k and v [n, kv_heads, d] at `position` of a cache."""
        self.norm_rope(q, q_gain, cos, sin, q_out, eps)
        turned = self.scratch(tuple(k.shape), q_out.dtype)
        self.norm_rope(k, k_gain, cos, sin, turned, eps)
        self.write_rows(turned, position, length, keys)
        self.write_rows(v, position, length, values)

    def rope_pair(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, q_out: Tensor, k_out: Tensor) -> None:
        """Rotate q and k, which lie alike, by the same angles."""
        self.rope(q, cos, sin, q_out)
        self.rope(k, cos, sin, k_out)

    def conv_gates(
        self,
        x: Tensor,
        w: Tensor,
        state: Tensor,
        length: Tensor,
        out: Tensor,
        b: Tensor,
        a: Tensor,
        a_log: Tensor,
        dt_bias: Tensor,
        beta: Tensor,
        g: Tensor,
    ) -> None:
        """Set all inputs of the delta rule: its q, k and v by causal_conv, beta and g by delta_gates."""
        self.causal_conv(x, w, state, length, out)
        self.delta_gates(b, a, a_log, dt_bias, beta, g)

    def delta_mixer(
        self,
        x: Tensor,
        w: Tensor,
        conv_state: Tensor,
        length: Tensor,
        b: Tensor,
        a: Tensor,
        a_log: Tensor,
        dt_bias: Tensor,
        z: Tensor,
        gain: Tensor,
        state: Tensor,
        out: Tensor,
        eps: float,
    ) -> None:
        """Mix rows in a linear-attention layer: set out = gated_norm(delta_rule(causal_conv(x))).

        x is [n, q | k | v] before the convolution; z, out are [n, v_heads, dv]; state is float32 [v_heads, dk, dv].
        """
        qkv = self.scratch(tuple(x.shape), out.dtype)
        beta, g = (self.scratch((x.shape[0], state.shape[0]), state.dtype) for _ in range(2))
        self.conv_gates(x, w, conv_state, length, qkv, b, a, a_log, dt_bias, beta, g)
        q, k, v = _heads_of(qkv, state)
        self.delta_rule(q, k, v, beta, g, state, length, out)
        self.gated_norm(out, gain, z, out, eps)

    def offer_mixer(
        self,
        x: Tensor,
        w: Tensor,
        conv_state: Tensor,
        b: Tensor,
        a: Tensor,
        a_log: Tensor,
        dt_bias: Tensor,
        z: Tensor,
        gain: Tensor,
        state: Tensor,
        qkv: Tensor,
        beta: Tensor,
        g: Tensor,
        out: Tensor,
        eps: float,
    ) -> None:
        """Do what delta_mixer does for rows of which not all may hold: both states stay as they are.

        Also set qkv, of x's shape, and beta and g, float32 [n, v_heads]: `keep_mixers` moves the states by them.
        """
        self.offer_conv(x, w, conv_state, qkv)
        self.delta_gates(b, a, a_log, dt_bias, beta, g)
        q, k, v = _heads_of(qkv, state)
        self.offer_delta(q, k, v, beta, g, state, out)
        self.gated_norm(out, gain, z, out, eps)

    def keep_mixers(
        self,
        x: Sequence[Tensor],
        qkv: Sequence[Tensor],
        beta: Sequence[Tensor],
        g: Sequence[Tensor],
        conv_states: Sequence[Tensor],
        states: Sequence[Tensor],
        accepted: Tensor,
    ) -> None:
        """Move the states of linear-attention layers past the first `accepted` (int64 [1]) rows offered to each."""
        for layer, state in enumerate(states):
            _, k, v = _heads_of(qkv[layer], state)
            self.keep_conv(x[layer], conv_states[layer], accepted)
            self.keep_delta(k, v, beta[layer], g[layer], state, accepted)

    def ada_norm(self, x: Tensor, table: Tensor, step: Tensor, out: Tensor, eps: float) -> None:
        """Set layer_norm whose gain and bias are table[step], for a table [steps, 2, width]."""
        chosen = self.scratch(tuple(table.shape[1:]), table.dtype)
        self.take_row(table, step, chosen)
        self.layer_norm(x, chosen[0], chosen[1], out, eps)

    def euler_step(self, x: Tensor, velocity: Tensor, dt: float, step: Tensor) -> None:
        """Take one step of `euler` in place, and count it."""
        self.euler(x, velocity, dt, x)
        self.increment(step)

    def append_rows(
        self, x: Tensor, fault: Tensor, bit: int, start: Tensor, length: Tensor, out: Tensor, end: Tensor
    ) -> None:
        """Check the live rows of x, write them at `start` of out, and set end = start + length."""
        self.check_finite(x, fault, bit, rows=length)
        self.write_rows(x, start, length, out)
        self.set_sum(start, length, end)

    def renew_chunk(
        self, x: Tensor, fault: Tensor, bit: int, newest: Tensor, previous: Tensor, counter: Tensor
    ) -> None:
        """Check x, keep `newest` as `previous`, set newest = x, and count it."""
        self.check_finite(x, fault, bit)
        self.copy(newest, previous)
        self.copy(x, newest)
        self.increment(counter)


def _heads_of(qkv: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The heads of rows [q | k | v] whose state is [v_heads, dk, dv]."""
    heads, k_width, v_width = state.shape
    keys = (qkv.shape[1] - heads * v_width) // 2
    q, k, v = qkv.split((keys, keys, heads * v_width), dim=-1)
    q, k = (part.unflatten(-1, (-1, k_width)) for part in (q, k))
    return q, k, v.unflatten(-1, (heads, v_width))
