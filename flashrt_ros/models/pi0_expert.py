# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The action expert of pi0 (arXiv 2410.24164) and pi0.5 (arXiv 2504.16054): the velocity of a chunk of actions.

Written after openpi's PI0Pytorch. Noise at t = 1 is integrated to actions at t = 0. All that depends on t alone is
computed when the weights are loaded: pi0's share of the time embedding, pi0.5's modulations. pi0's state token sees
the prefix and itself alone, so its keys and values do not depend on t, and stand in the cache behind the prefix.

Of a policy that was trained with given first rows (training-time real-time chunking, Black et al., arXiv 2512.05964),
those are at t = 0 in every step: its tables have a row more, for t = 0, and what depends on t is computed for both.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.gemma import GainNorms, Gemma, Norms, Place
from flashrt_ros.models.ops import Ops
from flashrt_ros.models.pi0_config import Pi0Config
from flashrt_ros.models.reference.flow import Given
from flashrt_ros.models.reference.quantised import dequantised
from flashrt_ros.models.weights import Part, Weight, centred, matrix, weight
from flashrt_ros.runtime.buffers import Buffer, BufferSet

_KEY = "paligemma_with_expert.gemma_expert.model."
_MIN_PERIOD, _MAX_PERIOD = 4e-3, 4.0


class TimedNorms:
    """Adaptive RMS norms and gated residuals, of the Euler step that a buffer names."""

    def __init__(self, b: BufferSet, step: Tensor, given: Given | None) -> None:
        self._b = b
        self.step = step
        self.given = given

    def gain(self, number: int) -> Tensor:
        """1 + scale."""
        return self._b["expert.gain"][number]

    def bias(self, number: int) -> Tensor | None:
        """The shift, multiplied with the weights behind it."""
        return self._b[f"expert.bias.{number}"]

    def gate(self, number: int) -> Tensor | None:
        """The gate."""
        return self._b["expert.gate"][number]


class Expert:
    """Embeds actions (and pi0's state), runs them over the cache of a prefix, and reads the velocity off."""

    def __init__(self, config: Pi0Config, dtype: torch.dtype, fp8: bool = False) -> None:
        """`fp8`: the weights of its layers, which each step of the denoising reads, are quantised."""
        self.config = config
        self.dtype = dtype
        self.gemma = Gemma(config.expert, "expert", _KEY, dtype, ends_in_cache=False, fp8=fp8)

    def weights(self) -> list[Weight]:
        """The weights that are used as the checkpoint holds them."""
        c, width = self.config, self.config.expert.width
        out = Part("action_out_proj.weight", (c.action_width, width))
        found = [*self.gemma.weights(), weight("expert.action_out", self.dtype, out)]
        if c.adaptive:
            return [*found, *self._affine("action_in", "action_in_proj", (width, c.action_width))]
        norms = enumerate(self.gemma.norm_keys())
        return [
            *found,
            *(centred(f"expert.norm.{number}", f"{key}.weight", width) for number, key in norms),
            *self._affine("state", "state_proj", (width, c.state_width)),
            *self._affine("action_mlp", "action_time_mlp_out", (width, width)),
        ]

    def _affine(self, name: str, key: str, shape: tuple[int, int]) -> list[Weight]:
        return [
            weight(f"expert.{name}.weight", self.dtype, Part(f"{key}.weight", shape)),
            weight(f"expert.{name}.bias", self.dtype, Part(f"{key}.bias", shape[:1])),
        ]

    def sources(self) -> list[Part]:
        """Checkpoint tensors that `derive` reads."""
        c, width = self.config, self.config.expert.width
        affine = {"action_in_proj": (width, c.action_width), "action_time_mlp_in": (width, 2 * width)}
        if c.adaptive:
            affine = dict.fromkeys(("time_mlp_in", "time_mlp_out"), (width, width))
            affine |= {f"{key}.dense": (3 * width, width) for key in self.gemma.norm_keys()}
        found = [Part(f"{key}.weight", shape) for key, shape in affine.items()]
        return [*found, *(Part(f"{key}.bias", shape[:1]) for key, shape in affine.items()), self._out_bias()]

    def _out_bias(self) -> Part:
        return Part("action_out_proj.bias", (self.config.action_width,))

    def buffers(self) -> list[Buffer]:
        """Derived weights."""
        c, width, norms = self.config, self.config.expert.width, 2 * self.config.expert.depth + 1
        times = c.steps + bool(c.prefix_lock)
        steps = times if c.adaptive else 1
        clean = [Buffer("expert.clean", (1,), torch.int64, "weight")] if c.prefix_lock else []
        out = Buffer(f"expert.bias.{norms - 1}", (steps, c.action_width), torch.float32, "weight")
        if not c.adaptive:
            return [
                out,
                *clean,
                Buffer("expert.action_in.weight", (width, c.action_width), self.dtype, "weight"),
                Buffer("expert.time_bias", (times, width), self.dtype, "weight"),
            ]
        e = c.expert
        heights = ((e.heads + 2 * e.kv_heads) * e.head_dim, 2 * e.mlp_width)
        return [
            out,
            *clean,
            Buffer("expert.gain", (norms, steps, width), torch.float32, "weight"),
            Buffer("expert.gate", (norms, steps, width), torch.float32, "weight"),
            *(
                Buffer(f"expert.bias.{number}", (steps, heights[number % 2]), torch.float32, "weight")
                for number in range(norms - 1)
            ),
        ]

    def derive(self, checkpoint: Checkpoint, b: BufferSet) -> None:
        """Fill what depends on t alone, once the stored weights are there; pi0's two products of actions become one."""
        c, last = self.config, 2 * self.config.expert.depth
        time = times(c.steps, c.accumulated_time)
        if c.prefix_lock:
            time = F.pad(time, (0, 1))
            b["expert.clean"].fill_(c.steps)
        features = time_features(time, c.expert.width)
        b[f"expert.bias.{last}"].copy_(checkpoint.read(self._out_bias().name))
        if c.adaptive:
            self._derive_modulations(checkpoint, b, features)
            return
        of_action, of_time = checkpoint.read("action_time_mlp_in.weight").double().chunk(2, dim=1)
        bias = checkpoint.read("action_time_mlp_in.bias").double()
        bias = bias + of_action @ checkpoint.read("action_in_proj.bias").double()
        b["expert.action_in.weight"].copy_(of_action @ checkpoint.read("action_in_proj.weight").double())
        b["expert.time_bias"].copy_(features.double() @ of_time.t() + bias)

    def _derive_modulations(self, checkpoint: Checkpoint, b: BufferSet, features: Tensor) -> None:
        condition = F.silu(_affine(checkpoint, "time_mlp_in", features))
        condition = F.silu(_affine(checkpoint, "time_mlp_out", condition))
        last = 2 * self.config.expert.depth
        for number, key in enumerate(self.gemma.norm_keys()):
            gain, shift, gate = _affine(checkpoint, f"{key}.dense", condition).chunk(3, dim=1)
            b["expert.gain"][number].copy_(1 + gain)
            b["expert.gate"][number].copy_(gate)
            layer, part = number // 2, ("qkv", "gate_up")[number % 2]
            w = matrix(b, "expert.action_out" if number == last else f"expert.{layer}.{part}")
            bias = b[f"expert.bias.{number}"]
            bias.add_(shift.to(bias.device) @ dequantised(w).t())

    def begin(self, ops: Ops, b: BufferSet, state: Tensor, start: Tensor, end: Tensor) -> None:
        """Put the keys and values of pi0's state token, of state float32 [1, state_width], at row `start`.

        `start` is where the prefix ends, `end` the row behind. pi0.5 has none.
        """
        x = ops.scratch((1, self.config.expert.width), self.dtype)
        ops.linear(state, b["expert.state.weight"], x, bias=b["expert.state.bias"])
        self.gemma.run(ops, b, x, GainNorms(b, "expert"), Place(start, end), cache_alone=True)

    def embed(self, ops: Ops, b: BufferSet, actions: Tensor, step: Tensor, x: Tensor) -> None:
        """Embed actions float32 [horizon, action_width]: x = W a + c for pi0.5, W' silu(W a + c(t)) + c' for pi0."""
        w = b["expert.action_in.weight"]
        if self.config.adaptive:
            ops.stepped_linear(actions, w, b["expert.action_in.bias"][None], b["zero"], x)
            return
        h = ops.scratch(tuple(x.shape), self.dtype)
        ops.stepped_linear(actions, w, b["expert.time_bias"], step, h, act="silu")
        given = self._given(b)
        if given is not None:
            own = ops.scratch(tuple(x.shape), self.dtype)
            ops.stepped_linear(actions, w, b["expert.time_bias"], given.step, own, act="silu")
            ops.write_rows(own, given.start, given.rows, h)
        ops.linear(h, b["expert.action_mlp.weight"], x, bias=b["expert.action_mlp.bias"])

    def run(self, ops: Ops, b: BufferSet, x: Tensor, step: Tensor, place: Place) -> tuple[Norms, int]:
        """Run embedded actions [horizon, width] through all layers, in place; the norm that is still to be taken."""
        norms: Norms = TimedNorms(b, step, self._given(b)) if self.config.adaptive else GainNorms(b, "expert")
        self.gemma.run(ops, b, x, norms, place)
        return norms, 2 * self.config.expert.depth

    def _given(self, b: BufferSet) -> Given | None:
        return Given(b["locked"], b["expert.clean"], b["zero"]) if self.config.prefix_lock else None


def times(steps: int, accumulated: bool) -> Tensor:
    """The times of the Euler steps, float32 [steps]: 1, 1 - 1/steps, ... summed up in float32, or each by itself."""
    if not accumulated:
        return 1.0 + torch.arange(steps, dtype=torch.float32) * (-1.0 / steps)
    dt, found = torch.tensor(-1.0 / steps), [torch.tensor(1.0)]
    while len(found) < steps:
        found.append(found[-1] + dt)
    return torch.stack(found)


def time_features(time: Tensor, width: int) -> Tensor:
    """Sines, then cosines, of 2 pi t / period with periods from 0.004 to 4, float32 [steps, width]."""
    fraction = torch.linspace(0.0, 1.0, width // 2, dtype=torch.float64)
    period = _MIN_PERIOD * (_MAX_PERIOD / _MIN_PERIOD) ** fraction
    angle = time.double()[:, None] * (2 * math.pi / period)
    return torch.cat((angle.sin(), angle.cos()), dim=1).float()


def _affine(checkpoint: Checkpoint, key: str, x: Tensor) -> Tensor:
    return F.linear(x, checkpoint.read(f"{key}.weight").float(), checkpoint.read(f"{key}.bias").float())
