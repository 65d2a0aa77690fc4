# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The Qwen3.5 backbone once more, differentiable and over batches of whole contexts.

It computes what flashrt_ros.models computes row by row (a test compares them), from tensors under the same canonical
names. Whole contexts are causal, so padding behind their last row needs no mask.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from flashrt_ros.models.backbone_config import FULL, TextConfig, VisionConfig
from flashrt_ros.models.reference.delta_rule import CHUNK

Weights = Mapping[str, Tensor]

_EPS_VISION = 1e-6


def encode_images(w: Weights, c: VisionConfig, images: Tensor) -> Tensor:
    """Embed images [n, height, width, 3], float in 0 .. 255, as rows [n, merged patches, out_hidden_size]."""
    n, height, width, _ = images.shape
    grid = (height // c.patch, width // c.patch)
    x = (images / 127.5 - 1).view(n, grid[0] // c.merge, c.merge, c.patch, grid[1] // c.merge, c.merge, c.patch, 3)
    x = x.permute(0, 1, 4, 2, 5, 7, 3, 6).reshape(n, grid[0] * grid[1], -1)
    kernel = w["visual.patch_embed.proj.weight"].sum(dim=2).flatten(1)  # a still image fills every frame
    order = _merged_order(grid, c.merge, images.device)
    x = F.linear(x, kernel, w["visual.patch_embed.proj.bias"]) + _positions(w, c, grid).index_select(0, order)
    cos, sin = _vision_rope(c, order, grid[1])
    for block in range(c.depth):
        x = _vision_block(w, c, f"visual.blocks.{block}.", x, cos, sin)
    x = _layer_norm(w, "visual.merger.norm", x).reshape(n, -1, c.hidden_size * c.merge**2)
    return _affine(w, "visual.merger.linear_fc2", F.gelu(_affine(w, "visual.merger.linear_fc1", x)))


def _merged_order(grid: tuple[int, int], merge: int, device: torch.device) -> Tensor:
    """Patches in the order in which those that the merger joins stand side by side."""
    places = torch.arange(grid[0] * grid[1], device=device).view(grid[0] // merge, merge, grid[1] // merge, merge)
    return places.transpose(1, 2).flatten()


def _positions(w: Weights, c: VisionConfig, grid: tuple[int, int]) -> Tensor:
    """The learned positions, resampled to the grid, row by row."""
    side = round(c.positions**0.5)
    table = w["visual.pos_embed.weight"].view(side, side, -1).permute(2, 0, 1)[None]
    return F.interpolate(table.float(), size=grid, mode="bilinear", align_corners=True)[0].flatten(1).t()


def _vision_rope(c: VisionConfig, order: Tensor, width: int) -> tuple[Tensor, Tensor]:
    quarter = c.head_dim // 4
    frequency = 1.0 / c.rope_theta ** (torch.arange(quarter, dtype=torch.float32, device=order.device) / quarter)
    angle = torch.cat(((order // width)[:, None] * frequency, (order % width)[:, None] * frequency), dim=1)
    return angle.cos(), angle.sin()


def _vision_block(w: Weights, c: VisionConfig, key: str, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    qkv = _affine(w, f"{key}attn.qkv", _layer_norm(w, f"{key}norm1", x))
    q, k, v = qkv.unflatten(-1, (3, c.heads, c.head_dim)).permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype), v)
    x = x + _affine(w, f"{key}attn.proj", y.transpose(1, 2).flatten(2))
    h = F.gelu(_affine(w, f"{key}mlp.linear_fc1", _layer_norm(w, f"{key}norm2", x)), approximate="tanh")
    return x + _affine(w, f"{key}mlp.linear_fc2", h)


def run_text(w: Weights, c: TextConfig, x: Tensor, rope: Tensor) -> Tensor:
    """Turn embeddings [batch, rows, hidden] at rotary positions [batch, 3, rows] into normed hidden states."""
    cos, sin = _text_rope(c, rope)
    for layer, kind in enumerate(c.layer_types):
        x = _layer(w, c, f"language_model.layers.{layer}.", kind, x, cos, sin)
    return _centred_norm(w["language_model.norm.weight"], x, c.eps)


def run_mtp(w: Weights, c: TextConfig, hidden: Tensor, following: Tensor, rope: Tensor) -> Tensor:
    """The hidden states that predict one token further, from hidden states and the embeddings of what follows them."""
    embedding = _centred_norm(w["mtp.pre_fc_norm_embedding.weight"], following, c.eps)
    before = _centred_norm(w["mtp.pre_fc_norm_hidden.weight"], hidden, c.eps)
    x = F.linear(torch.cat((embedding, before), dim=-1), w["mtp.fc.weight"])
    x = _layer(w, c, "mtp.layers.0.", FULL, x, *_text_rope(c, rope))
    return _centred_norm(w["mtp.norm.weight"], x, c.eps)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the first 2 * half features of x [..., rows, d] by angles [..., rows, half]; the rest passes."""
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), dim=-1)


def _text_rope(c: TextConfig, rope: Tensor) -> tuple[Tensor, Tensor]:
    """Cos and sin [batch, 1, rows, half]; frequency j turns with the axis (time, height or width) that owns it."""
    exponent = torch.arange(0, c.rotary_dim, 2, dtype=torch.float32, device=rope.device) / c.rotary_dim
    owner = torch.zeros(len(exponent), dtype=torch.long, device=rope.device)
    for axis in (1, 2):
        owner[axis : 3 * c.mrope_section[axis] : 3] = axis
    angle = rope.float()[:, owner].transpose(1, 2) * (1.0 / c.rope_theta**exponent)
    return angle.cos()[:, None], angle.sin()[:, None]


def _layer(w: Weights, c: TextConfig, key: str, kind: str, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    h = _centred_norm(w[f"{key}input_layernorm.weight"], x, c.eps)
    mixed = _attention(w, c, f"{key}self_attn.", h, cos, sin) if kind == FULL else _delta(w, c, f"{key}linear_attn.", h)
    x = x + mixed
    h = _centred_norm(w[f"{key}post_attention_layernorm.weight"], x, c.eps)
    gated = F.silu(F.linear(h, w[f"{key}mlp.gate_proj.weight"])) * F.linear(h, w[f"{key}mlp.up_proj.weight"])
    return x + F.linear(gated, w[f"{key}mlp.down_proj.weight"])


def _attention(w: Weights, c: TextConfig, key: str, h: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    q, gate = F.linear(h, w[f"{key}q_proj.weight"]).unflatten(-1, (c.heads, 2 * c.head_dim)).chunk(2, dim=-1)
    k, v = (F.linear(h, w[f"{key}{part}_proj.weight"]).unflatten(-1, (c.kv_heads, c.head_dim)) for part in "kv")
    q = _centred_norm(w[f"{key}q_norm.weight"], q, c.eps).transpose(1, 2)
    k = _centred_norm(w[f"{key}k_norm.weight"], k, c.eps).transpose(1, 2)
    v = v.transpose(1, 2)
    group = c.heads // c.kv_heads
    q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    return F.linear((y * torch.sigmoid(gate)).flatten(2), w[f"{key}o_proj.weight"])


def _delta(w: Weights, c: TextConfig, key: str, h: Tensor) -> Tensor:
    qkv = F.linear(h, w[f"{key}in_proj_qkv.weight"])
    z, b, a = (F.linear(h, w[f"{key}in_proj_{part}.weight"]) for part in "zba")
    taps = w[f"{key}conv1d.weight"][:, 0]
    padded = F.pad(qkv, (0, 0, taps.shape[1] - 1, 0))
    mixed = padded[:, : h.shape[1]] * taps[:, 0]
    for tap in range(1, taps.shape[1]):
        mixed = mixed + padded[:, tap : tap + h.shape[1]] * taps[:, tap]
    qkv = F.silu(mixed)
    q, k, v = qkv.float().split((c.key_width, c.key_width, c.value_width), dim=-1)
    q, k = (_unit(part.unflatten(-1, (c.k_heads, c.k_dim))) for part in (q, k))
    beta = torch.sigmoid(b.float())
    g = -torch.exp(w[f"{key}A_log"].float()) * F.softplus(a.float() + w[f"{key}dt_bias"])
    with torch.autocast(h.device.type, enabled=False):  # the state is float32
        y = delta_rule(q * c.k_dim**-0.5, k, v.unflatten(-1, (c.v_heads, c.v_dim)), beta, g)
    normed = F.rms_norm(y, y.shape[-1:], None, c.eps) * w[f"{key}norm.weight"]
    y = normed * F.silu(z.float().unflatten(-1, (c.v_heads, c.v_dim)))
    return F.linear(y.flatten(2), w[f"{key}out_proj.weight"])


def delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor) -> Tensor:
    """The gated delta rule from an empty state, in chunks; see flashrt_ros.models.reference.delta_rule.

    q, k [batch, rows, k_heads, dk], v [batch, rows, v_heads, dv], beta and log decay g [batch, rows, v_heads], float32.
    """
    rows, group = v.shape[1], v.shape[2] // k.shape[2]
    q, k = (part.repeat_interleave(group, dim=2) for part in (q, k))
    missing = -rows % CHUNK
    q, k, v, beta, g = (_chunks(F.pad(part, (0, 0) * (part.dim() - 2) + (0, missing))) for part in (q, k, v, beta, g))
    total = g.cumsum(dim=-1)
    grown = total.exp().unsqueeze(-1)
    future = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).triu(1)
    decay = (total.unsqueeze(-1) - total.unsqueeze(-2)).masked_fill(future, float("-inf")).exp()
    weighted = beta.unsqueeze(-1) * k
    system = (weighted @ k.transpose(-1, -2)) * decay
    inverse = invert_unit_lower(system)
    values, keys = inverse @ (beta.unsqueeze(-1) * v), inverse @ (weighted * grown)
    scores, grown_q = (q @ k.transpose(-1, -2)) * decay, q * grown
    left = (k * (total[..., -1:] - total).exp().unsqueeze(-1)).transpose(-1, -2)
    state = torch.zeros(*k.shape[:2], k.shape[-1], v.shape[-1], device=q.device)
    out = []
    for chunk in range(q.shape[2]):
        new = values[:, :, chunk] - keys[:, :, chunk] @ state
        out.append(scores[:, :, chunk] @ new + grown_q[:, :, chunk] @ state)
        state = state * grown[:, :, chunk, -1:] + left[:, :, chunk] @ new
    return torch.stack(out, dim=2).flatten(2, 3)[:, :, :rows].transpose(1, 2)


def invert_unit_lower(x: Tensor) -> Tensor:
    """Invert I + strictly lower part of x [..., n, n], n a power of two, by blocks of doubling size.

    [[A, 0], [C, B]]^-1 = [[A^-1, 0], [-B^-1 C A^-1, B^-1]]: as exact as substitution, in products that a CUDA graph
    can capture.
    """
    n = x.shape[-1]
    inverse = torch.ones(*x.shape[:-1], 1, 1, device=x.device)  # of the blocks of one row
    size = 1
    while size < n:
        blocks = x.unflatten(-1, (-1, 2 * size)).unflatten(-3, (-1, 2 * size))
        pairs = blocks.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)
        upper, lower = inverse[..., 0::2, :, :], inverse[..., 1::2, :, :]
        corner = -(lower @ pairs[..., size:, :size] @ upper)
        inverse = torch.cat((F.pad(upper, (0, size)), torch.cat((corner, lower), dim=-1)), dim=-2)
        size *= 2
    return inverse.squeeze(-3)


def _chunks(x: Tensor) -> Tensor:
    """[batch, rows, heads, ...] as [batch, heads, chunks, CHUNK, ...]."""
    return x.transpose(1, 2).unflatten(2, (-1, CHUNK))


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(dim=-1, keepdim=True) + 1e-6)


def _centred_norm(weight: Tensor, x: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x.float(), x.shape[-1:], 1 + weight, eps)


def _layer_norm(w: Weights, key: str, x: Tensor) -> Tensor:
    return F.layer_norm(x.float(), x.shape[-1:], w[f"{key}.weight"], w[f"{key}.bias"], _EPS_VISION)


def _affine(w: Weights, key: str, x: Tensor) -> Tensor:
    return F.linear(x, w[f"{key}.weight"], w[f"{key}.bias"])
