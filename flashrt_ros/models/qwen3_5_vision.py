# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The Qwen3.5 visual tower for images of one size: patches, transformer blocks, merger.

Written after the reference implementation in transformers (qwen3_5). Its position tables depend on the size of the
image alone, so they are computed when the weights are loaded.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flashrt_ros.models.backbone_config import VisionConfig
from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.ops import Ops
from flashrt_ros.models.weights import Part, Scope, Weight, weight
from flashrt_ros.runtime.buffers import Buffer, BufferSet

_EPS = 1e-6


class VisionModel:
    """Encodes `views` images of `grid` patches (height, width) at once."""

    def __init__(self, config: VisionConfig, views: int, grid: tuple[int, int], dtype: torch.dtype) -> None:
        self.config = config
        self.views = views
        self.grid = grid
        self.dtype = dtype

    def weights(self) -> list[Weight]:
        """The weights that are used as the checkpoint holds them."""
        c = self.config
        kernel = (c.hidden_size, c.channels, c.frames, c.patch, c.patch)
        proj = Part("visual.patch_embed.proj.weight", kernel, lambda w: w.flatten(1))
        merged, wide = c.hidden_size * c.merge**2, c.intermediate_size
        found = [
            weight("visual.patch.weight", self.dtype, proj, shape=(c.hidden_size, c.patch_width)),
            weight("visual.patch.bias", self.dtype, Part("visual.patch_embed.proj.bias", (c.hidden_size,))),
            *self._affine("merger.norm", "merger.norm", (c.hidden_size,)),
            *self._affine("merger.fc1", "merger.linear_fc1", (merged, merged)),
            *self._affine("merger.fc2", "merger.linear_fc2", (c.out_hidden_size, merged)),
        ]
        shapes: dict[str, tuple[str, tuple[int, ...]]] = {
            "norm1": ("norm1", (c.hidden_size,)),
            "norm2": ("norm2", (c.hidden_size,)),
            "qkv": ("attn.qkv", (3 * c.hidden_size, c.hidden_size)),
            "out": ("attn.proj", (c.hidden_size, c.hidden_size)),
            "fc1": ("mlp.linear_fc1", (wide, c.hidden_size)),
            "fc2": ("mlp.linear_fc2", (c.hidden_size, wide)),
        }
        for block in range(c.depth):
            for name, (key, shape) in shapes.items():
                found += self._affine(f"{block}.{name}", f"blocks.{block}.{key}", shape)
        return found

    def _affine(self, name: str, key: str, shape: tuple[int, ...]) -> list[Weight]:
        return [
            weight(f"visual.{name}.weight", self.dtype, Part(f"visual.{key}.weight", shape)),
            weight(f"visual.{name}.bias", self.dtype, Part(f"visual.{key}.bias", shape[:1])),
        ]

    def sources(self) -> list[Part]:
        """Checkpoint tensors that `derive` reads."""
        return [Part("visual.pos_embed.weight", (self.config.positions, self.config.hidden_size))]

    def buffers(self) -> list[Buffer]:
        """Derived weights."""
        c, patches = self.config, self.grid[0] * self.grid[1]
        half = c.head_dim // 2
        return [
            Buffer("visual.positions", (self.views * patches, c.hidden_size), self.dtype, "weight"),
            Buffer("visual.cos", (patches, half), torch.float32, "weight"),
            Buffer("visual.sin", (patches, half), torch.float32, "weight"),
        ]

    def derive(self, checkpoint: Checkpoint, b: BufferSet) -> None:
        """Resample the learned positions to the grid and fill the rotary tables."""
        c = self.config
        row, column = self._places()
        table = checkpoint.read("visual.pos_embed.weight")
        side = round(c.positions**0.5)
        positions = torch.zeros(row.numel(), c.hidden_size)
        for y, weight_y in _taps(row, self.grid[0], side):
            for x, weight_x in _taps(column, self.grid[1], side):
                positions += (weight_y * weight_x)[:, None] * table[y * side + x]
        b["visual.positions"].view(self.views, *positions.shape).copy_(positions)
        quarter = c.head_dim // 4
        frequency = 1.0 / c.rope_theta ** (torch.arange(quarter, dtype=torch.float32) / quarter)
        angle = torch.cat((row[:, None] * frequency, column[:, None] * frequency), dim=1)
        b["visual.cos"].copy_(angle.cos())
        b["visual.sin"].copy_(angle.sin())

    def _places(self) -> tuple[Tensor, Tensor]:
        """Row and column of every patch; the patches that the merger joins stand side by side."""
        height, width = self.grid
        merge = self.config.merge
        blocks = torch.arange(height * width).view(height // merge, merge, width // merge, merge)
        order = blocks.transpose(1, 2).flatten()
        return order // width, order % width

    def encode(self, ops: Ops, b: BufferSet, images: Tensor, out: Tensor) -> None:
        """Embed uint8 images [views, height, width, 3] as rows out [views * merged patches, out_hidden_size]."""
        c, w = self.config, Scope(b, "visual.")
        rows = self.views * self.grid[0] * self.grid[1]
        pixels = ops.scratch((rows, c.patch_width), self.dtype)
        ops.patches(images, c.patch, c.merge, pixels)
        x, h = (ops.scratch((rows, c.hidden_size), self.dtype) for _ in range(2))
        ops.linear(pixels, w["patch.weight"], x, bias=w["patch.bias"], add=w["positions"])
        for block in range(c.depth):
            self._block(ops, b, Scope(b, f"visual.{block}."), x, h)
        ops.layer_norm(x, w["merger.norm.weight"], w["merger.norm.bias"], h, _EPS)
        merged = h.view(-1, c.hidden_size * c.merge**2)
        y = ops.scratch(tuple(merged.shape), self.dtype)
        ops.linear(merged, w["merger.fc1.weight"], y, bias=w["merger.fc1.bias"], act="gelu")
        ops.linear(y, w["merger.fc2.weight"], out, bias=w["merger.fc2.bias"])

    def _block(self, ops: Ops, b: BufferSet, w: Scope, x: Tensor, h: Tensor) -> None:
        """Run x += W_o attention(rope(q), rope(k), v);  x += W_2 gelu(W_1 norm(x)); each view for itself."""
        c, rows = self.config, x.shape[0]
        ops.layer_norm(x, w["norm1.weight"], w["norm1.bias"], h, _EPS)
        qkv = ops.scratch((rows, 3 * c.hidden_size), self.dtype)
        ops.linear(h, w["qkv.weight"], qkv, bias=w["qkv.bias"])
        q, k, v = qkv.view(self.views, -1, 3, c.heads, c.head_dim).unbind(2)
        turned_q, turned_k = (ops.scratch(tuple(q.shape), self.dtype) for _ in range(2))
        ops.rope_pair(q, k, b["visual.cos"], b["visual.sin"], turned_q, turned_k)
        ops.attend(turned_q, turned_k, v, h.view(turned_q.shape))
        ops.linear(h, w["out.weight"], x, bias=w["out.bias"], add=x)
        ops.layer_norm(x, w["norm2.weight"], w["norm2.bias"], h, _EPS)
        y = ops.scratch((rows, c.intermediate_size), self.dtype)
        ops.linear(h, w["fc1.weight"], y, bias=w["fc1.bias"], act="gelu_tanh")
        ops.linear(y, w["fc2.weight"], x, bias=w["fc2.bias"], add=x)


def _taps(index: Tensor, size: int, side: int) -> list[tuple[Tensor, Tensor]]:
    """The two neighbours in a table of `side` entries, and their weights, of places on an axis of `size`."""
    place = index.float() * (side - 1) / max(size - 1, 1)
    low = place.floor().long()
    fraction = place - low
    return [(low, 1 - fraction), ((low + 1).clamp(max=side - 1), fraction)]
