# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Products, norms and activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from flashrt_ros.models.reference.precision import wide
from flashrt_ros.models.reference.quantised import Quantised, dequantised

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]

_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


class Dense:
    """Operations on rows of features."""

    def __init__(self, device: str = "cpu") -> None:
        """Scratch memory is taken on `device`."""
        self.device = device

    def scratch(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Memory with unspecified content that lives until the stage ends."""
        return torch.empty(shape, dtype=dtype, device=self.device)

    def linear(
        self,
        x: Tensor,
        w: Tensor,
        out: Tensor,
        bias: Tensor | None = None,
        act: Activation | None = None,
        add: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> None:
        """Set out = act(x w^T + bias) + add, for x [n, k], w [m, k], out and add [n, m]; `add` may be `out`.

        x is rounded to the precision of w. With `rows` (int64 [1]) only that many leading rows are read and written.
        """
        if rows is not None:
            live = int(rows)
            x, out, add = x[:live], out[:live], None if add is None else add[:live]
        x, same = x.to(w.dtype), out.dtype == w.dtype
        if add is not None and bias is None and act is None and same:
            torch.addmm(add, x, w.t(), out=out)
            return
        y = out if add is None and same else torch.empty(out.shape, dtype=w.dtype, device=out.device)
        if bias is None:
            torch.mm(x, w.t(), out=y)
        else:
            torch.addmm(bias, x, w.t(), out=y)
        if act is not None:
            y = _ACTIVATIONS[act](y)
        if add is not None:
            torch.add(y, add, out=out)
        elif y is not out:
            out.copy_(y)

    def dequantise(self, w: Quantised, out: Tensor) -> None:
        """Set out = w [m, k], in float32 and then cast."""
        out.copy_(dequantised(w))

    def norm_linear(self, x: Tensor, gain: Tensor, w: Tensor, out: Tensor, eps: float) -> None:
        """Set out = norm(x) w^T, for x [n, k], w [m, k] and out [n, m]."""
        h = self.scratch(tuple(x.shape), x.dtype)
        self.norm(x, gain, h, eps)
        self.linear(h, w, out)

    def norm_gated_linear(self, x: Tensor, gain: Tensor, w: Tensor, out: Tensor, eps: float) -> None:
        """Set out = silu(norm(x) gate^T) * norm(x) up^T, for x [n, k], w = [gate; up] [2 m, k] and out [n, m]."""
        gate_up = self.scratch((x.shape[0], w.shape[0]), x.dtype)
        self.norm_linear(x, gain, w, gate_up, eps)
        self.silu_product(gate_up, out)

    def norm(self, x: Tensor, gain: Tensor, out: Tensor, eps: float) -> None:
        """Set out = gain * x / rms(x) over the last dimension, in float32 and then cast; `out` may be x."""
        out.copy_(F.rms_norm(wide(x), gain.shape, gain, eps))

    def gated_norm(self, x: Tensor, gain: Tensor, z: Tensor, out: Tensor, eps: float) -> None:
        """Set out = gain * (x / rms(x)) * silu(z) over the last dimension; the norm and the silu in float32."""
        normed = F.rms_norm(wide(x), gain.shape, None, eps).to(gain.dtype)
        out.copy_(wide(gain * normed) * F.silu(wide(z)))

    def layer_norm(self, x: Tensor, gain: Tensor, bias: Tensor, out: Tensor, eps: float) -> None:
        """Set out = gain * (x - mean(x)) / sqrt(var(x) + eps) + bias over the last dimension."""
        out.copy_(F.layer_norm(x, gain.shape, gain, bias, eps))

    def standardise(self, x: Tensor, out: Tensor, eps: float) -> None:
        """Set out = (x - mean(x)) / sqrt(var(x) + eps) over the last dimension."""
        out.copy_(F.layer_norm(x, x.shape[-1:], None, None, eps))

    def silu_product(self, x: Tensor, out: Tensor) -> None:
        """Set out = silu(gate) * up for x = [gate | up]."""
        gate, up = x.chunk(2, dim=-1)
        torch.mul(F.silu(gate), up, out=out)

    def euler(self, x: Tensor, velocity: Tensor, dt: float, out: Tensor) -> None:
        """Set out = x + dt * velocity."""
        torch.add(x, velocity, alpha=dt, out=out)

    def check_finite(self, x: Tensor, fault: Tensor, bit: int, rows: Tensor | None = None) -> None:
        """Set bit `bit` of `fault` if a live row of x holds NaN or infinity."""
        live = x if rows is None else x[: int(rows)]
        if not bool(torch.isfinite(live).all()):
            fault.bitwise_or_(1 << bit)
