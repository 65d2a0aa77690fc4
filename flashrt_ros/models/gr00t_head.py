# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""StarVLA's QwenGR00T action head: flow matching by a diffusion transformer over backbone hidden states.

Written after StarVLA's FlowmatchingActionHead (itself after GR00T N1, arXiv 2503.14734). The velocity field is
integrated from noise at t = 0 to actions at t = 1 in equal Euler steps. All that depends on t alone is computed when
the weights are loaded, all that depends on the conditioning alone once a chunk.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.head_config import HeadConfig
from flashrt_ros.models.ops import Ops
from flashrt_ros.models.weights import Part, Scope, Weight, weight
from flashrt_ros.runtime.buffers import Buffer, BufferSet

_EPS, _EPS_OUT = 1e-5, 1e-6
_TIME_FEATURES = 256
_DIT = "action_model.model."


class ActionHead:
    """The velocity of a chunk of actions, given conditioning rows and the robot's state."""

    def __init__(self, config: HeadConfig, condition_rows: int, dtype: torch.dtype) -> None:
        self.config = config
        self.condition_rows = condition_rows
        self.dtype = dtype
        self.prefix = config.state_token + config.future_tokens
        self.tokens = self.prefix + config.horizon

    def weights(self) -> list[Weight]:
        """The weights that are used as the checkpoint holds them."""
        c = self.config
        future = Part("action_model.future_tokens.weight", (c.future_tokens, c.width))
        found = [
            *self._affine("action1", "action_model.action_encoder.layer1", (c.width, c.action_dim)),
            *self._affine("action3", "action_model.action_encoder.layer3", (c.width, c.width)),
            *self._affine("decoder1", "action_model.action_decoder.layer1", (c.mlp_width, c.output_dim)),
            *self._affine("decoder2", "action_model.action_decoder.layer2", (c.action_dim, c.mlp_width)),
            *self._affine("out", f"{_DIT}proj_out_2", (c.output_dim, c.width)),
            weight("head.future", self.dtype, future),
        ]
        if c.state_token:
            for name, (key, shape) in self._state_encoder().items():
                found += self._affine(name, key, shape)
        for layer in range(c.layers):
            found += self._block_weights(layer)
        return found

    def _state_encoder(self) -> dict[str, tuple[str, tuple[int, int]]]:
        c, key = self.config, "action_model.state_encoder.layer"
        return {"state1": (f"{key}1", (c.mlp_width, c.state_dim)), "state2": (f"{key}2", (c.width, c.mlp_width))}

    def _block_weights(self, layer: int) -> list[Weight]:
        c, key = self.config, f"{_DIT}transformer_blocks.{layer}."
        attended = c.cross_width if c.crosses(layer) else c.width
        heights: list[tuple[str, tuple[str, ...], int]] = [("q", ("q",), c.width), ("kv", ("k", "v"), attended)]
        if not c.crosses(layer):
            heights = [("qkv", ("q", "k", "v"), c.width)]
        found = []
        for name, parts, width in heights:
            found += [
                weight(
                    f"head.{layer}.{name}.{kind}",
                    self.dtype,
                    *(Part(f"{key}attn1.to_{part}.{kind}", (c.width, width)[:dims]) for part in parts),
                )
                for kind, dims in (("weight", 2), ("bias", 1))
            ]
        return [
            *found,
            *self._affine(f"{layer}.out", f"{key}attn1.to_out.0", (c.width, c.width)),
            *self._affine(f"{layer}.fc1", f"{key}ff.net.0.proj", (4 * c.width, c.width)),
            *self._affine(f"{layer}.fc2", f"{key}ff.net.2", (c.width, 4 * c.width)),
        ]

    def _affine(self, name: str, key: str, shape: tuple[int, ...]) -> list[Weight]:
        return [
            weight(f"head.{name}.weight", self.dtype, Part(f"{key}.weight", shape)),
            weight(f"head.{name}.bias", self.dtype, Part(f"{key}.bias", shape[:1])),
        ]

    def sources(self) -> list[Part]:
        """Checkpoint tensors that `derive` reads, and an encoder of the state that a head without a state has idle."""
        c = self.config
        affine: dict[str, tuple[int, ...]] = {
            f"{_DIT}timestep_encoder.timestep_embedder.linear_1": (c.width, _TIME_FEATURES),
            f"{_DIT}timestep_encoder.timestep_embedder.linear_2": (c.width, c.width),
            f"{_DIT}proj_out_1": (2 * c.width, c.width),
            "action_model.action_encoder.layer2": (c.width, 2 * c.width),
            **{f"{_DIT}transformer_blocks.{i}.norm1.linear": (2 * c.width, c.width) for i in range(c.layers)},
        }
        if c.state_dim and not c.state_token:
            affine |= dict(self._state_encoder().values())
        found = [Part(f"{key}.weight", shape) for key, shape in affine.items()]
        found += [Part(f"{key}.bias", shape[:1]) for key, shape in affine.items()]
        if c.positions:
            found.append(Part("action_model.position_embedding.weight", (c.positions, c.width)))
        return found

    def buffers(self) -> list[Buffer]:
        """Derived weights, and what is computed once a chunk."""
        c = self.config
        modulation = (c.steps, c.layers + 1, 2, c.width)
        found = [
            Buffer("head.action2.weight", (c.width, c.width), self.dtype, "weight"),
            Buffer("head.position", (c.horizon, c.width), self.dtype, "weight"),
            Buffer("head.time_bias", (c.steps, c.width), self.dtype, "weight"),
            Buffer("head.modulation", modulation, self.dtype, "weight"),
            Buffer("head.prefix", (self.prefix, c.width), self.dtype, "scratch"),
            Buffer("head.velocity", (c.horizon, c.action_dim), torch.float32, "scratch"),
        ]
        for layer in filter(c.crosses, range(c.layers)):
            found.append(Buffer(f"head.{layer}.memory", (self.condition_rows, 2 * c.width), self.dtype, "scratch"))
        return found

    def derive(self, checkpoint: Checkpoint, b: BufferSet) -> None:
        """Fill what depends on t alone: the gain and shift of each AdaLN, and the action encoder's share of t."""
        c, read = self.config, checkpoint.read
        time = torch.tensor([int(step / c.steps * c.time_buckets) for step in range(c.steps)], dtype=torch.float32)
        embedder = f"{_DIT}timestep_encoder.timestep_embedder.linear_"
        features = _waves(time, _TIME_FEATURES // 2, _TIME_FEATURES // 2 - 1, sine_first=False)
        temb = _affine(checkpoint, f"{embedder}2", F.silu(_affine(checkpoint, f"{embedder}1", features)))
        modulation = b["head.modulation"]
        for layer in range(c.layers):
            norm = f"{_DIT}transformer_blocks.{layer}.norm1.linear"
            scale, shift = _affine(checkpoint, norm, F.silu(temb)).chunk(2, dim=1)
            modulation[:, layer].copy_(torch.stack((1 + scale, shift), dim=1))
        shift, scale = _affine(checkpoint, f"{_DIT}proj_out_1", F.silu(temb)).chunk(2, dim=1)
        modulation[:, c.layers].copy_(torch.stack((1 + scale, shift), dim=1))
        of_action, of_time = read("action_model.action_encoder.layer2.weight").float().chunk(2, dim=1)
        waves = _waves(time, c.width // 2, c.width // 2, sine_first=True)
        b["head.action2.weight"].copy_(of_action)
        b["head.time_bias"].copy_(waves @ of_time.t() + read("action_model.action_encoder.layer2.bias").float())
        b["head.position"].zero_()
        if c.positions:
            b["head.position"].copy_(read("action_model.position_embedding.weight")[: c.horizon])

    def begin(self, ops: Ops, b: BufferSet, condition: Tensor, rows: Tensor, proprio: Tensor) -> None:
        """Compute what all steps share: the state and future tokens, and cross-attention keys and values.

        condition is [condition_rows, hidden], of which `rows` (int64 [1]) count; proprio float32 [1, state_dim].
        """
        c, w = self.config, Scope(b, "head.")
        prefix = b["head.prefix"]
        if c.state_token:
            h = ops.scratch((1, c.mlp_width), self.dtype)
            ops.linear(proprio, w["state1.weight"], h, bias=w["state1.bias"], act="relu")
            ops.linear(h, w["state2.weight"], prefix[:1], bias=w["state2.bias"])
        ops.copy(w["future"], prefix[-c.future_tokens :])
        for layer in filter(c.crosses, range(c.layers)):
            kv = f"{layer}.kv."
            ops.linear(condition, w[f"{kv}weight"], w[f"{layer}.memory"], bias=w[f"{kv}bias"], rows=rows)

    def velocity(self, ops: Ops, b: BufferSet, actions: Tensor, step: Tensor, rows: Tensor, out: Tensor) -> None:
        """The velocity of `actions` float32 [horizon, action_dim] at Euler step `step` (int64 [1])."""
        c, w = self.config, Scope(b, "head.")
        time_bias = ops.scratch((c.width,), self.dtype)
        ops.take_row(w["time_bias"], step, time_bias)
        x = ops.scratch((self.tokens, c.width), self.dtype)
        self._embed(ops, w, actions, time_bias, x)
        for layer in range(c.layers):
            modulation = w["modulation"][:, layer]
            self._block(ops, Scope(b, f"head.{layer}."), layer, modulation, step, rows, x)
        tail = x[-c.horizon :]
        h = ops.scratch((c.horizon, c.width), self.dtype)
        ops.ada_norm(tail, w["modulation"][:, c.layers], step, h, _EPS_OUT)
        y, z = (ops.scratch((c.horizon, width), self.dtype) for width in (c.output_dim, c.mlp_width))
        ops.linear(h, w["out.weight"], y, bias=w["out.bias"])
        ops.linear(y, w["decoder1.weight"], z, bias=w["decoder1.bias"], act="relu")
        ops.linear(z, w["decoder2.weight"], out, bias=w["decoder2.bias"])

    def _embed(self, ops: Ops, w: Scope, actions: Tensor, time_bias: Tensor, x: Tensor) -> None:
        """Set x = [state | future | W_3 silu(W_2 [W_1 a; waves(t)]) + position]."""
        c = self.config
        a, h = (ops.scratch((c.horizon, c.width), self.dtype) for _ in range(2))
        ops.linear(actions, w["action1.weight"], a, bias=w["action1.bias"])
        ops.linear(a, w["action2.weight"], h, bias=time_bias, act="silu")
        ops.copy(w["prefix"], x[: self.prefix])
        ops.linear(h, w["action3.weight"], x[self.prefix :], bias=w["action3.bias"], add=w["position"])

    def _block(self, ops: Ops, w: Scope, layer: int, modulation: Tensor, step: Tensor, rows: Tensor, x: Tensor) -> None:
        """Run x += W_o attention(adaLN(x, t));  x += W_2 gelu(W_1 LN(x))."""
        c = self.config
        shape = (1, -1, c.heads, c.head_dim)
        h, y = (ops.scratch((self.tokens, c.width), self.dtype) for _ in range(2))
        ops.ada_norm(x, modulation, step, h, _EPS)
        if c.crosses(layer):
            q = ops.scratch((self.tokens, c.width), self.dtype)
            ops.linear(h, w["q.weight"], q, bias=w["q.bias"])
            keys, values = (part.unflatten(-1, shape[2:]).unsqueeze(0) for part in w["memory"].chunk(2, dim=-1))
            ops.attend(q.view(shape), keys, values, y.view(shape), rows=rows)
        else:
            qkv = ops.scratch((self.tokens, 3 * c.width), self.dtype)
            ops.linear(h, w["qkv.weight"], qkv, bias=w["qkv.bias"])
            q, keys, values = qkv.view(1, self.tokens, 3, c.heads, c.head_dim).unbind(2)
            ops.attend(q, keys, values, y.view(shape))
        ops.linear(y, w["out.weight"], x, bias=w["out.bias"], add=x)
        ops.standardise(x, h, _EPS)
        wide = ops.scratch((self.tokens, 4 * c.width), self.dtype)
        ops.linear(h, w["fc1.weight"], wide, bias=w["fc1.bias"], act="gelu_tanh")
        ops.linear(wide, w["fc2.weight"], x, bias=w["fc2.bias"], add=x)


def _affine(checkpoint: Checkpoint, key: str, x: Tensor) -> Tensor:
    return F.linear(x, checkpoint.read(f"{key}.weight").float(), checkpoint.read(f"{key}.bias").float())


def _waves(time: Tensor, count: int, span: int, sine_first: bool) -> Tensor:
    """`count` sines and cosines of time * 10000^(-i / span), [steps, 2 * count]."""
    frequency = torch.exp(torch.arange(count, dtype=torch.float32) * (-math.log(10000.0) / span))
    angle = time[:, None] * frequency
    waves = (angle.sin(), angle.cos())
    return torch.cat(waves if sine_first else waves[::-1], dim=1)
