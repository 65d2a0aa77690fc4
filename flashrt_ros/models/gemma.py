# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Gemma transformers (arXiv 2403.08295) whose rows attend to all rows of a cache, their own among them.

pi0 has two of them over one cache: the language model writes the keys and values of the prefix, the action expert
reads them and puts its own behind. Written after the Gemma classes of transformers, as openpi uses them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from flashrt_ros.models.ops import Ops
from flashrt_ros.models.pi0_sizes import GemmaConfig
from flashrt_ros.models.reference.flow import Given
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

        x += W_o attention(norm(x));  x += W_down (gelu(W_gate norm(x)) * W_up norm(x)). With `cache_alone` they end at
        the last layer's keys and values, and x is of no use behind.
        """
        whole = self.config.depth - cache_alone
        cos, sin, numbers = b["cache.cos"], b["cache.sin"], range(2 * whole)
        if whole:
            ops.transformer_layers(
                x,
                [norms.gain(number) for number in numbers],
                norms.step,
                heads=self._parts(b, "qkv", whole),
                out=self._parts(b, "out", whole),
                gate_up=self._parts(b, "gate_up", whole),
                down=self._parts(b, "down", whole),
                cos=cos,
                sin=sin,
                start=place.start,
                end=place.end,
                keys=[b[f"cache.{layer}.key"] for layer in range(whole)],
                values=[b[f"cache.{layer}.value"] for layer in range(whole)],
                eps=EPS,
                biases=_all_or_none(norms.bias(number) for number in numbers),
                gates=_all_or_none(norms.gate(number) for number in numbers),
                length=place.length,
                given=norms.given,
            )
        if cache_alone:
            w = last_rows(matrix(b, f"{self.name}.{whole}.qkv"), 2 * self.config.kv_heads * self.config.head_dim)
            keys, values = b[f"cache.{whole}.key"], b[f"cache.{whole}.value"]
            gain, bias = norms.gain(2 * whole), norms.bias(2 * whole)
            ops.normed_heads(x, gain, norms.step, w, cos, sin, place.start, None, keys, values, EPS, bias, place.length)

    def _parts(self, b: BufferSet, part: str, count: int) -> list[Matrix]:
        return [matrix(b, f"{self.name}.{layer}.{part}") for layer in range(count)]


def _all_or_none(tables: Iterable[Tensor | None]) -> list[Tensor] | None:
    found = [table for table in tables if table is not None]
    return found or None
