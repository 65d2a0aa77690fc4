# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Greedy decoding of a few rows, some of them drafts that may turn out wrong.

A stage offers rows whose number that holds is known only behind its last layer. So the layers with a recurrent state
read it without moving it (`offer_*`), and are moved past the rows that hold once their number is in memory (`keep_*`),
from the very inputs that the offer had: no second pass over any weight.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flashrt_ros.models.reference.delta_rule import convolve, recurrent, unit
from flashrt_ros.models.reference.precision import wide


class Decoding:
    """Operations that choose tokens, count those that hold, and move states past them."""

    def argmax(self, x: Tensor, out: Tensor) -> None:
        """out[i] = the index of the largest value of x[i], the lowest of equal ones; x [n, m], out int64 [n]."""
        largest = x.amax(dim=-1, keepdim=True)
        torch.argmax((x == largest).to(torch.uint8), dim=-1, out=out)

    def accept(
        self, tokens: Tensor, chosen: Tensor, length: Tensor, stops: Tensor, accepted: Tensor, last: Tensor
    ) -> None:
        """Count the offered tokens that plain decoding would have said: tokens[0], and each behind one that holds.

        tokens[i + 1] holds if it is chosen[i], the choice behind row i, and tokens[i] is none of `stops`. tokens and
        chosen are int64 [n], of which `length` (int64 [1], at least 1) count; stops is int64 [m], padded with -1.
        Sets accepted (int64 [1], 1 to length) and last = accepted - 1.
        """
        row, offered = 0, int(length)
        while row + 1 < offered and not bool((stops == tokens[row]).any()) and bool(tokens[row + 1] == chosen[row]):
            row += 1
        accepted.fill_(row + 1)
        last.fill_(row)

    def last_row(self, table: Tensor, count: Tensor, out: Tensor) -> None:
        """out[0] = table[count - 1], or zero if count is 0; table [rows, n], out [1, n], count int64 [1]."""
        rows = int(count)
        if rows:
            out[0] = table[rows - 1]
        else:
            out.zero_()

    def offer_conv(self, x: Tensor, w: Tensor, state: Tensor, out: Tensor) -> None:
        """What `causal_conv` puts out for x [n, c], taps [taps, c] and state [taps - 1, c], which stays as it is."""
        out.copy_(convolve(torch.cat((state, x)), w))

    def keep_conv(self, x: Tensor, state: Tensor, accepted: Tensor) -> None:
        """Move state [taps - 1, c] past the first `accepted` (int64 [1]) rows of x [n, c], which were offered."""
        live = int(accepted)
        state.copy_(torch.cat((state, x))[live : live + state.shape[0]])

    def offer_delta(self, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, state: Tensor, out: Tensor) -> None:
        """What `delta_rule` puts out, row after row; the state stays as it is.

        Shapes are those of `delta_rule`. A row depends on those before it alone, in the same order of arithmetic
        however many are offered.
        """
        state = state.clone()
        q = _by_head(wide(q), state.shape[0]) * q.shape[-1] ** -0.5
        k, v = _by_head(wide(k), state.shape[0]), wide(v).transpose(0, 1)
        for row in range(q.shape[1]):
            one = slice(row, row + 1)
            y = recurrent(q[:, one], k[:, one], v[:, one], beta[one].t(), g[one].t(), state)
            out[row] = y[:, 0]

    def keep_delta(self, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, state: Tensor, accepted: Tensor) -> None:
        """Move the state of `delta_rule` past the first `accepted` (int64 [1]) rows, which were offered."""
        k, v = _by_head(wide(k), state.shape[0]), wide(v).transpose(0, 1)
        for row in range(int(accepted)):
            one = slice(row, row + 1)
            recurrent(k[:, one], k[:, one], v[:, one], beta[one].t(), g[one].t(), state)


def _by_head(x: Tensor, heads: int) -> Tensor:
    """Normalise x [n, k_heads, d], and repeat it for the heads that it serves: [heads, n, d]."""
    return unit(x).transpose(0, 1).repeat_interleave(heads // x.shape[1], dim=0)
