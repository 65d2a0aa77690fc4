# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The linear-attention layer: causal convolution and gated delta rule (Yang et al., arXiv 2412.06464)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from flashrt_ros.models.reference.precision import wide

CHUNK = 64
"""Rows that one triangular system couples; longer stages are multiples of it."""


class DeltaRule:
    """Operations with a recurrent state, which rows from `length` on neither decay nor write."""

    def causal_conv(self, x: Tensor, w: Tensor, state: Tensor, length: Tensor, out: Tensor) -> None:
        """out[i] = silu(sum_j w[j] * x[i - taps + 1 + j]), channel by channel, for x [n, c] and w [taps, c].

        state [taps - 1, c] holds the inputs before x[0] and becomes those before x[length].
        """
        padded = torch.cat((state, x))
        out.copy_(convolve(padded, w))
        live = int(length)
        state.copy_(padded[live : live + state.shape[0]])

    def delta_gates(self, b: Tensor, a: Tensor, a_log: Tensor, dt_bias: Tensor, beta: Tensor, g: Tensor) -> None:
        """Set beta = sigmoid(b) and the log decay g = -exp(a_log) * softplus(a + dt_bias), float32 [n, heads]."""
        beta.copy_(torch.sigmoid(b))
        torch.mul(F.softplus(wide(a) + dt_bias), -torch.exp(wide(a_log)), out=g)

    def delta_rule(
        self, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, state: Tensor, length: Tensor, out: Tensor
    ) -> None:
        """Run S = e^g S;  S = S + k (beta (v - S^T k))^T;  out = S^T q, row by row and head by head.

        q and k [n, k_heads, dk] are normalised here, and q divided by sqrt(dk); each serves v_heads / k_heads
        neighbouring heads of v [n, v_heads, dv]. beta, g are float32 [n, v_heads], state float32 [v_heads, dk, dv].
        """
        n, heads, _ = v.shape
        padding = (torch.arange(n, device=v.device) >= length)[:, None]
        beta, g = (t.masked_fill(padding, 0).t() for t in (beta, g))
        k, v = (wide(t).masked_fill(padding[..., None], 0) for t in (k, v))
        q = unit(wide(q)) * q.shape[-1] ** -0.5
        k, v = unit(k).transpose(0, 1), v.transpose(0, 1)
        group = heads // k.shape[0]
        q, k = (t.repeat_interleave(group, dim=0) for t in (q.transpose(0, 1), k))
        chunk = min(n, CHUNK)
        for first in range(0, n, chunk):
            rows = slice(first, first + chunk)
            step = recurrent if chunk == 1 else _chunked
            y = step(q[:, rows], k[:, rows], v[:, rows], beta[:, rows], g[:, rows], state)
            out[rows] = y.transpose(0, 1)


def convolve(padded: Tensor, w: Tensor) -> Tensor:
    """Silu of the causal convolution of rows [taps - 1 + n, c] with taps [taps, c]; [n, c]."""
    taps = w.shape[0]
    n = padded.shape[0] - taps + 1
    y = padded[:n] * w[0]
    for tap in range(1, taps):
        y.addcmul_(padded[tap : tap + n], w[tap])
    return F.silu(y)


def unit(x: Tensor) -> Tensor:
    """Divide by the length over the last dimension."""
    return x * torch.rsqrt((x * x).sum(dim=-1, keepdim=True) + 1e-6)


def recurrent(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, state: Tensor) -> Tensor:
    """One row of every head: q, k [heads, 1, dk], v [heads, 1, dv]."""
    state.mul_(g.exp().unsqueeze(-1))
    delta = beta.unsqueeze(-1) * (v - torch.bmm(k, state))
    state.baddbmm_(k.transpose(1, 2), delta)
    return torch.bmm(q, state)


def _chunked(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, state: Tensor) -> Tensor:
    """All rows of a chunk at once: with T = (I + A)^-1 the new values are T beta v - T (beta k e^G) S."""
    n = q.shape[1]
    total = g.cumsum(dim=1)
    grown = total.exp().unsqueeze(-1)
    future = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
    decay = (total.unsqueeze(2) - total.unsqueeze(1)).masked_fill(future, float("-inf")).exp()
    weighted = beta.unsqueeze(-1) * k
    system = torch.bmm(weighted, k.transpose(1, 2)) * decay
    right = torch.cat((beta.unsqueeze(-1) * v, weighted * grown), dim=-1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    values, keys = solved.split((v.shape[-1], k.shape[-1]), dim=-1)
    new = torch.baddbmm(values, keys, state, alpha=-1)
    y = torch.bmm(torch.bmm(q, k.transpose(1, 2)) * decay, new)
    y.baddbmm_(q * grown, state)
    left = (total[:, -1:] - total).exp().unsqueeze(-1)
    state.mul_(grown[:, -1:]).baddbmm_((k * left).transpose(1, 2), new)
    return y
