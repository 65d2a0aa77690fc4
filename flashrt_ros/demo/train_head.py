# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The flow-matching head once more, differentiable, for several noisy chunks under one conditioning.

It computes what flashrt_ros.models.gr00t_head computes (a test compares them), from tensors under the same names.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from flashrt_ros.demo.train_backbone import Weights
from flashrt_ros.models.head_config import HeadConfig

_EPS, _EPS_OUT = 1e-5, 1e-6
_TIME_FEATURES = 256
_OWN = "action_model."
_DIT = "action_model.model."


def velocity(w: Weights, c: HeadConfig, condition: Tensor, proprio: Tensor, actions: Tensor, time: Tensor) -> Tensor:
    """The velocity field.

    Args:
        w: tensors under their canonical names.
        c: the head.
        condition: [n, rows, hidden]; all rows count.
        proprio: [n, state_dim], normalised.
        actions: [n, samples, horizon, action_dim].
        time: int64 [n, samples], 0 up to time_buckets.

    Returns:
        [n, samples, horizon, action_dim].
    """
    n, samples = time.shape
    features = _waves(time.flatten(), _TIME_FEATURES // 2, _TIME_FEATURES // 2 - 1, sine_first=False)
    embedder = f"{_DIT}timestep_encoder.timestep_embedder.linear_"
    turned = F.silu(_affine(w, f"{embedder}2", F.silu(_affine(w, f"{embedder}1", features))))
    x = _embed(w, c, proprio, actions, time)
    for layer in range(c.layers):
        x = _block(w, c, layer, x, turned, condition)
    shift, scale = _affine(w, f"{_DIT}proj_out_1", turned)[:, None].chunk(2, dim=-1)
    h = _standardise(x[:, -c.horizon :], _EPS_OUT) * (1 + scale) + shift
    y = F.relu(_affine(w, f"{_OWN}action_decoder.layer1", _affine(w, f"{_DIT}proj_out_2", h)))
    return _affine(w, f"{_OWN}action_decoder.layer2", y).float().view(n, samples, c.horizon, c.action_dim)


def _embed(w: Weights, c: HeadConfig, proprio: Tensor, actions: Tensor, time: Tensor) -> Tensor:
    """Tokens [n * samples, state | future | actions, width]."""
    samples = time.shape[1]
    a = _affine(w, f"{_OWN}action_encoder.layer1", actions.flatten(0, 1))
    waves = _waves(time.flatten(), c.width // 2, c.width // 2, sine_first=True)[:, None].expand(-1, c.horizon, -1)
    h = F.silu(_affine(w, f"{_OWN}action_encoder.layer2", torch.cat((a, waves.to(a.dtype)), dim=-1)))
    tokens = [_affine(w, f"{_OWN}action_encoder.layer3", h)]
    if c.positions:
        tokens[0] = tokens[0] + w[f"{_OWN}position_embedding.weight"][: c.horizon]
    tokens.insert(0, w[f"{_OWN}future_tokens.weight"].expand(len(h), -1, -1))
    if c.state_dim:
        state = F.relu(_affine(w, f"{_OWN}state_encoder.layer1", proprio[:, None]))
        state = _affine(w, f"{_OWN}state_encoder.layer2", state)
        tokens.insert(0, state.repeat_interleave(samples, dim=0))
    return torch.cat([part.float() for part in tokens], dim=1)


def _block(w: Weights, c: HeadConfig, layer: int, x: Tensor, turned: Tensor, condition: Tensor) -> Tensor:
    key = f"{_DIT}transformer_blocks.{layer}."
    scale, shift = _affine(w, f"{key}norm1.linear", turned)[:, None].chunk(2, dim=-1)
    h = _standardise(x, _EPS) * (1 + scale) + shift
    if c.crosses(layer):  # queries of all samples share one set of keys and values
        h, source = h.unflatten(0, (len(condition), -1)).flatten(1, 2), condition
    else:
        source = h
    q = _heads(c, _affine(w, f"{key}attn1.to_q", h))
    k, v = (_heads(c, _affine(w, f"{key}attn1.to_{part}", source)) for part in "kv")
    y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    x = x + _affine(w, f"{key}attn1.to_out.0", y).view(x.shape)
    h = F.gelu(_affine(w, f"{key}ff.net.0.proj", _standardise(x, _EPS)), approximate="tanh")
    return x + _affine(w, f"{key}ff.net.2", h)


def _heads(c: HeadConfig, x: Tensor) -> Tensor:
    return x.unflatten(-1, (c.heads, c.head_dim)).transpose(1, 2)


def _standardise(x: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x.float(), x.shape[-1:], None, None, eps)


def _affine(w: Weights, key: str, x: Tensor) -> Tensor:
    return F.linear(x, w[f"{key}.weight"], w[f"{key}.bias"])


def _waves(time: Tensor, count: int, span: int, sine_first: bool) -> Tensor:
    """`count` sines and cosines of time * 10000^(-i / span), [len(time), 2 * count]."""
    frequency = torch.exp(torch.arange(count, dtype=torch.float32, device=time.device) * (-math.log(10000.0) / span))
    angle = time[:, None].float() * frequency
    waves = (angle.sin(), angle.cos())
    return torch.cat(waves if sine_first else waves[::-1], dim=1)
