# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The SigLIP visual tower (Zhai et al., arXiv 2303.15343) and the projection to the language model's width.

Written after the SigLIP and PaliGemma classes of transformers, as openpi uses them: learned positions, no pooling,
and image rows that are not divided by the root of their width.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from flashrt_ros.models.ops import Ops
from flashrt_ros.models.pi0_sizes import SiglipConfig
from flashrt_ros.models.weights import Part, Scope, Weight, weight
from flashrt_ros.runtime.buffers import BufferSet

_EPS = 1e-6
_KEY = "paligemma_with_expert.paligemma.model."
_TOWER = f"{_KEY}vision_tower.vision_model."


class Siglip:
    """Encodes `views` images of `patches` patches at once."""

    def __init__(self, config: SiglipConfig, views: int, patches: int, out_width: int, dtype: torch.dtype) -> None:
        self.config = config
        self.views = views
        self.patches = patches
        self.out_width = out_width
        self.dtype = dtype

    def weights(self) -> list[Weight]:
        """The weights, positions repeated for each view."""
        c, embeddings = self.config, f"{_TOWER}embeddings."
        kernel = Part(f"{embeddings}patch_embedding.weight", (c.width, 3, c.patch, c.patch), self._padded)
        table = Part(
            f"{embeddings}position_embedding.weight", (self.patches, c.width), lambda w: w.repeat(self.views, 1)
        )
        found = [
            weight("visual.patch.weight", self.dtype, kernel, shape=(c.width, self._padded_patch)),
            weight("visual.patch.bias", self.dtype, Part(f"{embeddings}patch_embedding.bias", (c.width,))),
            weight("visual.positions", self.dtype, table, shape=(self.views * self.patches, c.width)),
            *self._affine("norm", f"{_TOWER}post_layernorm", (c.width,)),
            *self._affine("project", f"{_KEY}multi_modal_projector.linear", (self.out_width, c.width)),
        ]
        for layer in range(c.depth):
            found += self._layer_weights(layer)
        return found

    @property
    def _padded_patch(self) -> int:
        """Values of a patch, and zeros up to a multiple of 16 bytes of them in either precision."""
        return -(-3 * self.config.patch**2 // 8) * 8

    def _padded(self, kernel: Tensor) -> Tensor:
        flat = kernel.flatten(1)
        return torch.nn.functional.pad(flat, (0, self._padded_patch - flat.shape[1]))

    def _layer_weights(self, layer: int) -> list[Weight]:
        c, key = self.config, f"{_TOWER}encoder.layers.{layer}."
        square = (c.width, c.width)
        heads = c.heads * self._head_dim
        out = f"{key}self_attn.out_proj"
        return [
            *self._affine(f"{layer}.norm1", f"{key}layer_norm1", (c.width,)),
            *self._affine(f"{layer}.norm2", f"{key}layer_norm2", (c.width,)),
            self._qkv(f"visual.{layer}.qkv.weight", f"{key}self_attn.{{}}_proj.weight", square, (3 * heads, c.width)),
            self._qkv(f"visual.{layer}.qkv.bias", f"{key}self_attn.{{}}_proj.bias", (c.width,), (3 * heads,)),
            weight(
                f"visual.{layer}.out.weight",
                self.dtype,
                Part(f"{out}.weight", square, lambda w: self._widened(w.t(), 1.0).t()),
                shape=(c.width, heads),
            ),
            weight(f"visual.{layer}.out.bias", self.dtype, Part(f"{out}.bias", (c.width,))),
            *self._affine(f"{layer}.fc1", f"{key}mlp.fc1", (c.mlp_width, c.width)),
            *self._affine(f"{layer}.fc2", f"{key}mlp.fc2", (c.width, c.mlp_width)),
        ]

    @property
    def _head_dim(self) -> int:
        """Features of a head, and zeros up to a multiple of 8, which kernels want."""
        return -(-self.config.head_dim // 8) * 8

    def _qkv(self, name: str, key: str, shape: tuple[int, ...], stacked: tuple[int, ...]) -> Weight:
        """Queries are as much larger as attention takes them for wider."""
        factors = {"q": (self._head_dim / self.config.head_dim) ** 0.5, "k": 1.0, "v": 1.0}
        parts = (
            Part(key.format(part), shape, partial(self._widened, factor=factor)) for part, factor in factors.items()
        )
        return weight(name, self.dtype, *parts, shape=stacked)

    def _widened(self, w: Tensor, factor: float) -> Tensor:
        """Rows [heads * head_dim, ...] with zeros behind each head."""
        c = self.config
        if self._head_dim == c.head_dim:
            return w
        wide = torch.zeros(c.heads, self._head_dim, *w.shape[1:], dtype=w.dtype)
        wide[:, : c.head_dim] = w.unflatten(0, (c.heads, c.head_dim)) * factor
        return wide.flatten(0, 1)

    def _affine(self, name: str, key: str, shape: tuple[int, ...]) -> list[Weight]:
        return [
            weight(f"visual.{name}.weight", self.dtype, Part(f"{key}.weight", shape)),
            weight(f"visual.{name}.bias", self.dtype, Part(f"{key}.bias", shape[:1])),
        ]

    def encode(self, ops: Ops, b: BufferSet, images: Tensor, out: Tensor) -> None:
        """Embed uint8 images [views, height, width, 3] as rows out [views * patches, out_width]."""
        c, w, rows = self.config, Scope(b, "visual."), self.views * self.patches
        pixels = ops.scratch((rows, self._padded_patch), self.dtype)
        ops.clear(pixels)
        ops.patches(images, c.patch, 1, pixels[:, : 3 * c.patch**2])
        x, h = (ops.scratch((rows, c.width), self.dtype) for _ in range(2))
        ops.linear(pixels, w["patch.weight"], x, bias=w["patch.bias"], add=w["positions"])
        for layer in range(c.depth):
            self._layer(ops, Scope(b, f"visual.{layer}."), x, h)
        ops.layer_norm(x, w["norm.weight"], w["norm.bias"], h, _EPS)
        ops.linear(h, w["project.weight"], out, bias=w["project.bias"])

    def _layer(self, ops: Ops, w: Scope, x: Tensor, h: Tensor) -> None:
        """Run x += W_o attention(norm(x));  x += W_2 gelu(W_1 norm(x)); each view for itself."""
        c, rows = self.config, x.shape[0]
        ops.layer_norm(x, w["norm1.weight"], w["norm1.bias"], h, _EPS)
        heads = c.heads * self._head_dim
        qkv, y = (ops.scratch((rows, count * heads), self.dtype) for count in (3, 1))
        ops.linear(h, w["qkv.weight"], qkv, bias=w["qkv.bias"])
        q, k, v = qkv.view(self.views, self.patches, 3, c.heads, self._head_dim).unbind(2)
        ops.attend(q, k, v, y.view(q.shape))
        ops.linear(y, w["out.weight"], x, bias=w["out.bias"], add=x)
        ops.layer_norm(x, w["norm2.weight"], w["norm2.bias"], h, _EPS)
        y = ops.scratch((rows, c.mlp_width), self.dtype)
        ops.linear(h, w["fc1.weight"], y, bias=w["fc1.bias"], act="gelu_tanh")
        ops.linear(y, w["fc2.weight"], x, bias=w["fc2.bias"], add=x)
