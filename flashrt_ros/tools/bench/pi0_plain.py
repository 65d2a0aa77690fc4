# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""pi0 and pi0.5 in plain PyTorch, from the same tensors: what a policy costs without kernels of one's own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.pi0_config import Pi0Config
from flashrt_ros.models.pi0_expert import time_features, times
from flashrt_ros.models.pi0_sizes import GemmaConfig

_PALIGEMMA = "paligemma_with_expert.paligemma."
_VISION = f"{_PALIGEMMA}model.vision_tower.vision_model."
_LANGUAGE, _EXPERT = f"{_PALIGEMMA}model.language_model.", "paligemma_with_expert.gemma_expert.model."

Caches = list[tuple[Tensor, Tensor]]


class PlainPi0:
    """One observation to one chunk, each operation a call of torch; nothing of it depends on values on the host."""

    def __init__(self, config: Pi0Config, checkpoint: Checkpoint, dtype: torch.dtype, device: str) -> None:
        self.config = config
        self.dtype = dtype
        self.tensors = {name: checkpoint.read(name).to(device, dtype) for name in checkpoint.shapes}
        features = time_features(times(config.steps, config.accumulated_time), config.expert.width)
        self._time = features.to(device, dtype)
        self._device = device

    def __call__(self, images: Tensor, tokens: Tensor, state: Tensor, noise: Tensor) -> Tensor:
        """The chunk, float32, of uint8 images [views, height, width, 3], tokens [n], state [k] and noise."""
        return self.denoise(self.prefix(self.encode(images), tokens), state, noise)

    def encode(self, images: Tensor) -> Tensor:
        """Rows of the prefix [views * patches, width]."""
        c, t = self.config.vision, self.tensors
        x = images.permute(0, 3, 1, 2).to(self.dtype) / 127.5 - 1
        stem = f"{_VISION}embeddings."
        x = F.conv2d(x, t[f"{stem}patch_embedding.weight"], t[f"{stem}patch_embedding.bias"], stride=c.patch)
        x = x.flatten(2).transpose(1, 2) + t[f"{stem}position_embedding.weight"]
        for layer in range(c.depth):
            key = f"{_VISION}encoder.layers.{layer}."
            h = self._layer_norm(x, f"{key}layer_norm1")
            q, k, v = (
                self._linear(h, f"{key}self_attn.{part}_proj").unflatten(-1, (c.heads, -1)).transpose(1, 2)
                for part in "qkv"
            )
            y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            x = x + self._linear(y, f"{key}self_attn.out_proj")
            h = F.gelu(self._linear(self._layer_norm(x, f"{key}layer_norm2"), f"{key}mlp.fc1"), approximate="tanh")
            x = x + self._linear(h, f"{key}mlp.fc2")
        x = self._layer_norm(x, f"{_VISION}post_layernorm")
        return self._linear(x, f"{_PALIGEMMA}model.multi_modal_projector.linear").flatten(0, 1)

    def prefix(self, images: Tensor, tokens: Tensor) -> Caches:
        """Keys and values of each layer."""
        c = self.config.language
        language = F.embedding(tokens, self.tensors[f"{_PALIGEMMA}lm_head.weight"]) * c.width**0.5
        x, caches = torch.cat((images, language)), []
        place = torch.arange(len(x), device=self._device)
        for layer in range(c.depth):
            key = f"{_LANGUAGE}layers.{layer}."
            h = self._norm(x, self.tensors[f"{key}input_layernorm.weight"])
            q, k, v = self._heads(c, key, h, place)
            caches.append((k, v))
            if layer == c.depth - 1:
                break
            x = x + self._attend(q, k, v) @ self.tensors[f"{key}self_attn.o_proj.weight"].t()
            h = self._norm(x, self.tensors[f"{key}post_attention_layernorm.weight"])
            x = x + self._mlp(key, h)
        return caches

    def denoise(self, caches: Caches, state: Tensor, noise: Tensor) -> Tensor:
        """Integrate the velocity."""
        c, x = self.config, noise
        for step in range(c.steps):
            x = x - self._velocity(caches, state, x, step) / c.steps
        return x

    def _velocity(self, caches: Caches, state: Tensor, actions: Tensor, step: int) -> Tensor:
        c, start = self.config.expert, caches[0][0].shape[1]
        x, condition, mask = self._suffix(state, actions, step, start)
        place = start + torch.arange(len(x), device=self._device)
        for layer, (keys, values) in enumerate(caches):
            key = f"{_EXPERT}layers.{layer}."
            h, gate = self._ada(x, f"{key}input_layernorm", condition)
            q, k, v = self._heads(c, key, h, place)
            y = self._attend(q, torch.cat((keys, k), 1), torch.cat((values, v), 1), mask)
            x = x + gate * (y @ self.tensors[f"{key}self_attn.o_proj.weight"].t())
            h, gate = self._ada(x, f"{key}post_attention_layernorm", condition)
            x = x + gate * self._mlp(key, h)
        h, _ = self._ada(x, f"{_EXPERT}norm", condition)
        return self._linear(h[-self.config.horizon :], "action_out_proj").float()

    def _suffix(
        self, state: Tensor, actions: Tensor, step: int, start: int
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Rows of the suffix, what modulates its norms, and which keys its rows see."""
        x, time = self._linear(actions.to(self.dtype), "action_in_proj"), self._time[step]
        if self.config.adaptive:
            return x, F.silu(self._linear(F.silu(self._linear(time, "time_mlp_in")), "time_mlp_out")), None
        x = torch.cat((x, time.expand_as(x)), 1)
        x = self._linear(F.silu(self._linear(x, "action_time_mlp_in")), "action_time_mlp_out")
        x = torch.cat((self._linear(state.to(self.dtype), "state_proj")[None], x))
        mask = torch.ones(len(x), start + len(x), dtype=torch.bool, device=self._device)
        mask[0, start + 1 :] = False
        return x, None, mask

    def _ada(self, x: Tensor, key: str, condition: Tensor | None) -> tuple[Tensor, Tensor | float]:
        if condition is None:
            return self._norm(x, self.tensors[f"{key}.weight"]), 1.0
        scale, shift, gate = self._linear(condition, f"{key}.dense").chunk(3, -1)
        return self._norm(x, scale) + shift, gate

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return (wide * (1 + weight.float())).to(x.dtype)

    def _heads(self, c: GemmaConfig, key: str, h: Tensor, place: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Q [heads, n, d], k and v [kv_heads, n, d], rotated."""
        q, k, v = (
            (h @ self.tensors[f"{key}self_attn.{part}_proj.weight"].t()).unflatten(-1, (-1, c.head_dim)).transpose(0, 1)
            for part in "qkv"
        )
        half = c.head_dim // 2
        frequency = 10000.0 ** (-torch.arange(half, device=self._device) / half)
        angle = place[:, None] * frequency
        cos, sin = angle.cos().to(self.dtype), angle.sin().to(self.dtype)
        return _turned(q, cos, sin), _turned(k, cos, sin), v

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        k, v = (
            part.expand(len(q), -1, -1) if len(part) == 1 else part.repeat_interleave(len(q) // len(part), 0)
            for part in (k, v)
        )
        return F.scaled_dot_product_attention(q[None], k[None], v[None], mask)[0].transpose(0, 1).flatten(1)

    def _mlp(self, key: str, h: Tensor) -> Tensor:
        gate, up, down = (self.tensors[f"{key}mlp.{part}_proj.weight"].t() for part in ("gate", "up", "down"))
        return (F.gelu(h @ gate, approximate="tanh") * (h @ up)) @ down

    def _linear(self, x: Tensor, key: str) -> Tensor:
        return F.linear(x, self.tensors[f"{key}.weight"], self.tensors[f"{key}.bias"])

    def _layer_norm(self, x: Tensor, key: str) -> Tensor:
        weight, bias = self.tensors[f"{key}.weight"], self.tensors[f"{key}.bias"]
        return F.layer_norm(x, weight.shape, weight, bias, 1e-6)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
