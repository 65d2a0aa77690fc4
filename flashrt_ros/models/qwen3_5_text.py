# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The Qwen3.5 language model: gated delta-rule layers and gated full-attention layers.

Written after the published checkpoints and their reference implementation in transformers (qwen3_5). The token
mixers are those of Gated Delta Networks (arXiv 2412.06464) and gated attention (arXiv 2505.06708).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from flashrt_ros.models.backbone_config import FULL, TextConfig
from flashrt_ros.models.ops import Ops
from flashrt_ros.models.weights import Part, Scope, Weight, centred, weight
from flashrt_ros.runtime.buffers import Buffer, BufferSet

POSITION, ROPE_DELTA, LENGTH = "position", "rope_delta", "length"
ROPE_OFFSETS, ROPE_LENGTH = "rope_offsets", "rope_length"


Angles = tuple[Tensor, Tensor]
"""Cosines and sines [n, rotary_dim / 2] of the rotary angles of some rows."""


@dataclass(frozen=True, slots=True)
class Cache:
    """Where the rows of a stage stand in a layer's KV, [rows, kv_heads, head_dim]: `length` from `position` on."""

    keys: Tensor
    values: Tensor
    position: Tensor
    length: Tensor


@dataclass(frozen=True, slots=True)
class Offered:
    """What moves a linear layer's states past some rows: what its convolution and its delta rule were given."""

    layer: int
    x: Tensor
    qkv: Tensor
    beta: Tensor
    g: Tensor


class TextModel:
    """Appends rows to a context: KV rows in full-attention layers, a recurrent and a conv state in the others."""

    def __init__(self, config: TextConfig, dtype: torch.dtype, max_rows: int) -> None:
        self.config = config
        self.dtype = dtype
        self.max_rows = max_rows

    def weights(self) -> list[Weight]:
        """The weights that are used as the checkpoint holds them."""
        c = self.config
        table = (c.vocab_size, c.hidden_size)
        found = [
            weight("embed_tokens", self.dtype, Part("language_model.embed_tokens.weight", table)),
            centred("final_norm", "language_model.norm.weight", c.hidden_size),
        ]
        if not c.tied:
            found.append(weight("lm_head", self.dtype, Part("lm_head.weight", table)))
        for layer, kind in enumerate(c.layer_types):
            found += layer_weights(c, self.dtype, f"text.{layer}.", f"language_model.layers.{layer}.", kind)
        return found

    def buffers(self) -> list[Buffer]:
        """State, inputs and tables (not the weights)."""
        c, half = self.config, self.config.rotary_dim // 2
        found = [
            Buffer(POSITION, (1,), torch.int64, "state", "context"),
            Buffer(ROPE_DELTA, (1,), torch.int64, "state", "context"),
            Buffer("rope.frequency", (half,), torch.float32, "weight"),
            Buffer("rope.axis", (half,), torch.int64, "weight"),
        ]
        for layer, kind in enumerate(c.layer_types):
            if kind == FULL:
                rows = (self.max_rows, c.kv_heads, c.head_dim)
                found += [
                    Buffer(f"kv.{layer}.{part}", rows, self.dtype, "state", "context", rows=POSITION)
                    for part in ("key", "value")
                ]
            else:
                recurrent, conv = (c.v_heads, c.k_dim, c.v_dim), (c.conv_taps - 1, c.conv_width)
                found.append(Buffer(f"recurrent.{layer}", recurrent, torch.float32, "state", "context"))
                found.append(Buffer(f"conv.{layer}", conv, self.dtype, "state", "context"))
        return found

    def derive(self, b: BufferSet) -> None:
        """Fill the rotary tables: frequency j turns with the axis (time, height or width) that owns it."""
        c = self.config
        exponent = torch.arange(0, c.rotary_dim, 2, dtype=torch.float32) / c.rotary_dim
        b["rope.frequency"].copy_(1.0 / c.rope_theta**exponent)
        b["rope.axis"].zero_()
        for axis in (1, 2):
            b["rope.axis"][axis : 3 * c.mrope_section[axis] : 3] = axis

    def restart(self, ops: Ops, b: BufferSet, flag: Tensor) -> None:
        """Begin from an empty context if flag is not 0."""
        names = [POSITION, ROPE_DELTA]
        for layer, kind in enumerate(self.config.layer_types):
            names += [] if kind == FULL else [f"recurrent.{layer}", f"conv.{layer}"]
        ops.clear_if(flag, [b[name] for name in names])

    def angles(self, ops: Ops, b: BufferSet, position: Tensor, n: int, ahead: int = 0) -> Angles:
        """Rotary angles of `n` rows from `position` (int64 [1]) on, placed by the rotary offsets from `ahead` on."""
        half = self.config.rotary_dim // 2
        cos, sin = (ops.scratch((n, half), self.dtype) for _ in range(2))
        offsets = b[ROPE_OFFSETS][:, ahead : ahead + n]
        ops.rope_table(position, b[ROPE_DELTA], offsets, b["rope.frequency"], b["rope.axis"], cos, sin)
        return cos, sin

    def append(self, ops: Ops, b: BufferSet, x: Tensor, angles: Angles) -> None:
        """Turn embeddings x [n, hidden] into normed hidden states, in place; rows below `length` enter the context.

        The cursors are left where they are: `advance` ends the stage.
        """
        self._run(ops, b, x, angles, None)

    def offer(self, ops: Ops, b: BufferSet, x: Tensor, angles: Angles) -> list[Offered]:
        """Do the same for rows of which only the first may enter: `keep` and `advance` take in those that hold.

        n is small. Until then the state is as it was, but for KV rows behind the cursor.
        """
        offered: list[Offered] = []
        self._run(ops, b, x, angles, offered)
        return offered

    def keep(self, ops: Ops, b: BufferSet, offered: Sequence[Offered], accepted: Tensor) -> None:
        """Move the recurrent and conv states past the first `accepted` (int64 [1]) of the rows offered."""
        ops.keep_mixers(
            [rows.x for rows in offered],
            [rows.qkv for rows in offered],
            [rows.beta for rows in offered],
            [rows.g for rows in offered],
            [b[f"conv.{rows.layer}"] for rows in offered],
            [b[f"recurrent.{rows.layer}"] for rows in offered],
            accepted,
        )

    def advance(self, ops: Ops, b: BufferSet) -> None:
        """Move the cursors past the rows of this stage."""
        ops.advance(b[LENGTH], b[ROPE_LENGTH], b[POSITION], b[ROPE_DELTA])

    def logits(self, ops: Ops, b: BufferSet, hidden: Tensor, out: Tensor) -> None:
        """Scores of the next token, [n, vocab_size]."""
        ops.linear(hidden, b["embed_tokens" if self.config.tied else "lm_head"], out)

    def _run(self, ops: Ops, b: BufferSet, x: Tensor, angles: Angles, offered: list[Offered] | None) -> None:
        c = self.config
        for layer, kind in enumerate(c.layer_types):
            w = Scope(b, f"text.{layer}.")
            if kind == FULL:
                cache = Cache(b[f"kv.{layer}.key"], b[f"kv.{layer}.value"], b[POSITION], b[LENGTH])
                attention(ops, c, w, x, angles, cache)
            else:
                self._delta(ops, b, w, layer, x, offered)
            mlp(ops, c, w, x)
        ops.norm(x, b["final_norm"], x, c.eps)

    def _delta(self, ops: Ops, b: BufferSet, w: Scope, layer: int, x: Tensor, offered: list[Offered] | None) -> None:
        """Run x += W_o (norm(delta_rule(silu(conv(qkv)))) * silu(z)) of norm(x); `offered` grows, and states stay."""
        c, n = self.config, x.shape[0]
        widths = (c.conv_width, c.value_width, c.v_heads, c.v_heads)
        mixed = ops.scratch((n, sum(widths)), self.dtype)
        ops.norm_linear(x, w["input_norm"], w["in"], mixed, c.eps)
        qkv, z, beta, decay = mixed.split(widths, dim=-1)
        conv, state = b[f"conv.{layer}"], b[f"recurrent.{layer}"]
        gates = (beta, decay, w["a_log"], w["dt_bias"])
        z, y = z.unflatten(-1, (c.v_heads, c.v_dim)), ops.scratch((n, c.v_heads, c.v_dim), self.dtype)
        if offered is None:
            ops.delta_mixer(qkv, w["conv"], conv, b[LENGTH], *gates, z, w["norm"], state, y, c.eps)
        else:
            beta, g = (ops.scratch((n, c.v_heads), torch.float32) for _ in range(2))
            rows = Offered(layer, qkv, ops.scratch((n, c.conv_width), self.dtype), beta, g)
            ops.offer_mixer(qkv, w["conv"], conv, *gates, z, w["norm"], state, rows.qkv, rows.beta, rows.g, y, c.eps)
            offered.append(rows)
        ops.linear(y.view(n, c.value_width), w["out"], x, add=x)


def attention(ops: Ops, c: TextConfig, w: Scope, x: Tensor, angles: Angles, cache: Cache) -> None:
    """Run x += W_o (sigmoid(gate) * softmax(q k^T / sqrt(d)) v), with q and k of norm(x) normed and rotated."""
    n, (cos, sin) = x.shape[0], angles
    queries, rows = c.heads * c.head_dim, c.kv_heads * c.head_dim
    qkv = ops.scratch((n, 2 * queries + 2 * rows), x.dtype)
    ops.norm_linear(x, w["input_norm"], w["qkv"], qkv, c.eps)
    q_gate, key, value = qkv.split((2 * queries, rows, rows), dim=-1)
    q_gate = q_gate.unflatten(-1, (c.heads, 2 * c.head_dim))
    key, value = (part.unflatten(-1, (c.kv_heads, c.head_dim)) for part in (key, value))
    q = ops.scratch((n, c.heads, c.head_dim), x.dtype)
    q_in, gate = q_gate.split(c.head_dim, dim=-1)
    gains, cursors = (w["q_norm"], w["k_norm"]), (cache.position, cache.length)
    ops.rope_kv(q_in, key, value, *gains, cos, sin, *cursors, q, cache.keys, cache.values, c.eps)
    y = ops.scratch((n, queries), x.dtype)
    ops.attend_cache(q, cache.keys, cache.values, *cursors, gate, y)
    ops.linear(y, w["out"], x, add=x)


def remember(ops: Ops, c: TextConfig, w: Scope, x: Tensor, angles: Angles, cache: Cache) -> None:
    """Write the keys and values of norm(x) alone, for a layer that nothing else is wanted of."""
    n, (cos, sin) = x.shape[0], angles
    queries, rows = 2 * c.heads * c.head_dim, c.kv_heads * c.head_dim
    kv, k = ops.scratch((n, 2 * rows), x.dtype), ops.scratch((n, c.kv_heads, c.head_dim), x.dtype)
    ops.norm_linear(x, w["input_norm"], w["qkv"][queries:], kv, c.eps)
    key, value = (part.unflatten(-1, (c.kv_heads, c.head_dim)) for part in kv.split(rows, dim=-1))
    ops.norm_rope(key, w["k_norm"], cos, sin, k, c.eps)
    ops.write_rows(k, cache.position, cache.length, cache.keys)
    ops.write_rows(value, cache.position, cache.length, cache.values)


def mlp(ops: Ops, c: TextConfig, w: Scope, x: Tensor) -> None:
    """Run x += W_down (silu(W_gate h) * W_up h), h = norm(x)."""
    y = ops.scratch((x.shape[0], c.intermediate_size), x.dtype)
    ops.norm_gated_linear(x, w["post_norm"], w["gate_up"], y, c.eps)
    ops.linear(y, w["down"], x, add=x)


def layer_weights(c: TextConfig, dtype: torch.dtype, name: str, key: str, kind: str) -> list[Weight]:
    """The weights of one layer, buffers named below `name` and checkpoint tensors below `key`."""
    mixer = _attention_weights if kind == FULL else _delta_weights
    inner = (c.intermediate_size, c.hidden_size)
    gate, up = (Part(f"{key}mlp.{part}_proj.weight", inner) for part in ("gate", "up"))
    return [
        centred(f"{name}input_norm", f"{key}input_layernorm.weight", c.hidden_size),
        *mixer(c, dtype, name, key),
        centred(f"{name}post_norm", f"{key}post_attention_layernorm.weight", c.hidden_size),
        weight(f"{name}gate_up", dtype, gate, up),
        weight(f"{name}down", dtype, Part(f"{key}mlp.down_proj.weight", inner[::-1])),
    ]


def _attention_weights(c: TextConfig, dtype: torch.dtype, name: str, key: str) -> list[Weight]:
    key += "self_attn."
    queries, rows = c.heads * c.head_dim, c.kv_heads * c.head_dim
    heights = (("q", 2 * queries), ("k", rows), ("v", rows))
    parts = [Part(f"{key}{part}_proj.weight", (height, c.hidden_size)) for part, height in heights]
    return [
        weight(f"{name}qkv", dtype, *parts),
        centred(f"{name}q_norm", f"{key}q_norm.weight", c.head_dim),
        centred(f"{name}k_norm", f"{key}k_norm.weight", c.head_dim),
        weight(f"{name}out", dtype, Part(f"{key}o_proj.weight", (c.hidden_size, queries))),
    ]


def _delta_weights(c: TextConfig, dtype: torch.dtype, name: str, key: str) -> list[Weight]:
    key += "linear_attn."
    heights = (("qkv", c.conv_width), ("z", c.value_width), ("b", c.v_heads), ("a", c.v_heads))
    parts = [Part(f"{key}in_proj_{part}.weight", (height, c.hidden_size)) for part, height in heights]
    taps = Part(f"{key}conv1d.weight", (c.conv_width, 1, c.conv_taps), lambda w: w[:, 0].t())
    return [
        weight(f"{name}in", dtype, *parts),
        weight(f"{name}conv", dtype, taps, shape=(c.conv_taps, c.conv_width)),
        weight(f"{name}a_log", torch.float32, Part(f"{key}A_log", (c.v_heads,))),
        weight(f"{name}dt_bias", torch.float32, Part(f"{key}dt_bias", (c.v_heads,))),
        weight(f"{name}norm", dtype, Part(f"{key}norm.weight", (c.v_dim,))),
        weight(f"{name}out", dtype, Part(f"{key}out_proj.weight", (c.hidden_size, c.value_width))),
    ]
