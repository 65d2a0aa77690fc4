# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Gemma transformers (arXiv 2403.08295) whose rows attend to all rows of a cache, their own among them.

pi0 has two of them over one cache: the language model writes the keys and values of the prefix, the action expert
reads them and puts its own behind. Written after the Gemma classes of transformers, as openpi uses them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from flashrt_ros.models.ops import Ops
from flashrt_ros.models.pi0_sizes import GemmaConfig
from flashrt_ros.models.reference.quantised import Matrix, last_rows
from flashrt_ros.models.weights import Part, Weight, matrix, quantised, weight
from flashrt_ros.runtime.buffers import Buffer, BufferSet

EPS = 1e-6
_THETA = 10000.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where rows stand: at `start` of the cache, `length` of them (None: all); they see the rows before `end`.

    Each is int64 [1].
    """

    start: Tensor
    end: Tensor
    length: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """The first `rows` rows, for which row `step` of the tables counts; `start` is 0. Each is int64 [1]."""

    rows: Tensor
    step: Tensor
    start: Tensor


class Norms(Protocol):
    """Tables of a transformer's norms: number 2 l and 2 l + 1 in layer l, then the last; float32 [steps, width].

    `step` (int64 [1]) says which row counts, for all but those that are `given`.
    """

    step: Tensor
    given: Given | None

    def gain(self, number: int) -> Tensor:
        """What x / rms(x) is multiplied by."""

    def bias(self, number: int) -> Tensor | None:
        """What is added to the product behind a norm: its shift, multiplied out."""

    def gate(self, number: int) -> Tensor | None:
        """What is multiplied with the part behind a norm before it is added to the residual."""


class GainNorms:
    """RMS norms with a gain each that is always the same, and plain residuals."""

    given: Given | None = None

    def __init__(self, b: BufferSet, name: str) -> None:
        self._b, self._name = b, name
        self.step = b["zero"]

    def gain(self, number: int) -> Tensor:
        """The one gain."""
        return self._b[f"{self._name}.norm.{number}"][None]

    def bias(self, number: int) -> Tensor | None:
        """None."""
        return None

    def gate(self, number: int) -> Tensor | None:
        """None."""
        return None


class Cache:
    """Keys and values of each layer, and the rotary angles of each row."""

    def __init__(self, config: GemmaConfig, rows: int, suffix: int, dtype: torch.dtype) -> None:
        """`rows` of a prefix are state; `suffix` more, behind those that live, are free to be written."""
        self.config = config
        self.rows = rows + suffix
        self.dtype = dtype

    def buffers(self) -> list[Buffer]:
        """Keys and values, bounded by the cursor "position", and the tables."""
        c = self.config
        shape, half = (self.rows, c.kv_heads, c.head_dim), c.head_dim // 2
        return [
            *(
                Buffer(f"cache.{layer}.{part}", shape, self.dtype, "state", "context", "position")
                for layer in range(c.depth)
                for part in ("key", "value")
            ),
            Buffer("cache.cos", (self.rows, half), torch.float32, "weight"),
            Buffer("cache.sin", (self.rows, half), torch.float32, "weight"),
        ]

    def derive(self, b: BufferSet) -> None:
        """Fill the tables."""
        half = self.config.head_dim // 2
        frequency = 1.0 / _THETA ** (torch.arange(half, dtype=torch.float32) / half)
        angle = torch.arange(self.rows, dtype=torch.float32)[:, None] * frequency
        b["cache.cos"].copy_(angle.cos())
        b["cache.sin"].copy_(angle.sin())


class Gemma:
    """A transformer; its weights are called `name`.<layer>.<part>."""

    def __init__(
        self, config: GemmaConfig, name: str, key: str, dtype: torch.dtype, ends_in_cache: bool, fp8: bool = False
    ) -> None:
        """Name it.

        Args:
            config: its sizes.
            name: of its buffers.
            key: of the checkpoint's tensors.
            dtype: what it computes in.
            ends_in_cache: of the last layer only keys and values are wanted.
            fp8: the weights of its products are quantised.
        """
        self.config = config
        self.name = name
        self.key = key
        self.dtype = dtype
        self.ends_in_cache = ends_in_cache
        self.fp8 = fp8

    def weights(self) -> list[Weight]:
        """Products; norms are of more than one kind, so that others name them."""
        c, found = self.config, []
        for layer in range(c.depth):
            key, name = f"{self.key}layers.{layer}.", f"{self.name}.{layer}."
            alone = self.ends_in_cache and layer == c.depth - 1
            wanted = ("k", "v") if alone else ("q", "k", "v")
            qkv = (Part(f"{key}self_attn.{part}_proj.weight", self._attention_shape(part)) for part in wanted)
            found.append(self._weight(f"{name}qkv", *qkv))
            if alone:
                continue
            wide = [Part(f"{key}mlp.{part}_proj.weight", (c.mlp_width, c.width)) for part in ("gate", "up")]
            found += [
                self._weight(f"{name}out", Part(f"{key}self_attn.o_proj.weight", self._attention_shape("o"))),
                self._weight(f"{name}gate_up", *wide),
                self._weight(f"{name}down", Part(f"{key}mlp.down_proj.weight", (c.width, c.mlp_width))),
            ]
        return found

    def _weight(self, name: str, *parts: Part) -> Weight:
        return quantised(name, *parts) if self.fp8 else weight(name, self.dtype, *parts)

    def unused(self) -> list[Part]:
        """Tensors of the last layer behind its keys and values."""
        if not self.ends_in_cache:
            return []
        c, key = self.config, f"{self.key}layers.{self.config.depth - 1}."
        return [
            Part(f"{key}self_attn.q_proj.weight", self._attention_shape("q")),
            Part(f"{key}self_attn.o_proj.weight", self._attention_shape("o")),
            Part(f"{key}mlp.gate_proj.weight", (c.mlp_width, c.width)),
            Part(f"{key}mlp.up_proj.weight", (c.mlp_width, c.width)),
            Part(f"{key}mlp.down_proj.weight", (c.width, c.mlp_width)),
        ]

    def _attention_shape(self, part: str) -> tuple[int, int]:
        c = self.config
        if part == "o":
            return c.width, c.heads * c.head_dim
        return (c.heads if part == "q" else c.kv_heads) * c.head_dim, c.width

    def norm_keys(self) -> list[str]:
        """The keys of the norms, in the order of their numbers, without `.weight`."""
        layers = (f"{self.key}layers.{layer}." for layer in range(self.config.depth))
        names = ("input_layernorm", "post_attention_layernorm")
        return [*(f"{key}{name}" for key in layers for name in names), f"{self.key}norm"]

    def run(self, ops: Ops, b: BufferSet, x: Tensor, norms: Norms, place: Place, cache_alone: bool = False) -> None:
        """Run rows x [n, width] through all layers, in place.

        With `cache_alone` they end at the last layer's keys and values, and x is of no use behind.
        """
        last = self.config.depth - 1
        for layer in range(last + 1):
            self._layer(ops, b, layer, x, norms, place, cache_alone and layer == last)

    def _layer(
        self, ops: Ops, b: BufferSet, layer: int, x: Tensor, norms: Norms, place: Place, cache_alone: bool
    ) -> None:
        """Run x += W_o attention(norm(x));  x += W_down (gelu(W_gate norm(x)) * W_up norm(x))."""
        c, n, name, number = self.config, x.shape[0], f"{self.name}.{layer}.", 2 * layer
        keys, values = b[f"cache.{layer}.key"], b[f"cache.{layer}.value"]
        q = None if cache_alone else ops.scratch((n, c.heads, c.head_dim), self.dtype)
        self._heads(ops, b, layer, x, norms, place, q)
        if q is None:
            return
        y = ops.scratch((n, c.heads * c.head_dim), self.dtype)
        ops.attend_rows(q, keys, values, place.end, y)
        self._add(ops, y, matrix(b, f"{name}out"), norms, number, x)
        number += 1
        wide = ops.scratch((n, c.mlp_width), self.dtype)
        w, gain, bias = matrix(b, f"{name}gate_up"), norms.gain(number), norms.bias(number)
        ops.normed_gelu_linear(x, gain, norms.step, w, wide, EPS, bias)
        given = norms.given
        if given is not None:
            own = ops.scratch(tuple(wide.shape), wide.dtype)
            ops.normed_gelu_linear(x, gain, given.step, w, own, EPS, bias)
            ops.write_rows(own, given.start, given.rows, wide)
        self._add(ops, wide, matrix(b, f"{name}down"), norms, number, x)

    def _heads(
        self, ops: Ops, b: BufferSet, layer: int, x: Tensor, norms: Norms, place: Place, q: Tensor | None
    ) -> None:
        """Put keys and values into the cache, and queries, where they are wanted, into q."""
        c, number, given = self.config, 2 * layer, norms.given
        w, gain, bias = matrix(b, f"{self.name}.{layer}.qkv"), norms.gain(number), norms.bias(number)
        if q is None:
            w = last_rows(w, 2 * c.kv_heads * c.head_dim)
        tables, cache = (b["cache.cos"], b["cache.sin"]), (b[f"cache.{layer}.key"], b[f"cache.{layer}.value"])
        ops.normed_heads(x, gain, norms.step, w, *tables, place.start, q, *cache, EPS, bias, place.length)
        if given is not None and q is not None:
            own = ops.scratch(tuple(q.shape), q.dtype)
            ops.normed_heads(x, gain, given.step, w, *tables, place.start, own, *cache, EPS, bias, given.rows)
            ops.write_rows(own, given.start, given.rows, q)

    def _add(self, ops: Ops, y: Tensor, w: Matrix, norms: Norms, number: int, x: Tensor) -> None:
        """Run x += gate * (W y)."""
        given, gate = norms.given, norms.gate(number)
        if given is None:
            ops.linear_gated_add(y, w, norms.step, x, gate)
            return
        own = ops.scratch(tuple(x.shape), x.dtype)
        ops.copy(x, own)
        ops.linear_gated_add(y, w, given.step, own, gate)
        ops.linear_gated_add(y, w, norms.step, x, gate)
        ops.write_rows(own, given.start, given.rows, x)
