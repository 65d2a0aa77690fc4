# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011) and the Box-Muller transform."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF


class Philox:
    """Noise that is a function of a key and a counter, both of them state."""

    def philox(self, counter: Tensor, key: Tensor, out: Tensor) -> None:
        """Four 32-bit words for each counter: counter, out int64 [4, n] and key int64 [2] hold values below 2^32."""
        c0, c1, c2, c3 = counter.unbind(0)
        k0, k1 = key[0], key[1]
        for _ in range(10):
            left, right = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
            c0, c1, c2, c3 = (
                ((right >> 32) & _LOW) ^ c1 ^ k0,
                right & _LOW,
                ((left >> 32) & _LOW) ^ c3 ^ k1,
                left & _LOW,
            )
            k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
        torch.stack((c0, c1, c2, c3), out=out)

    def normals(self, generator: Tensor, out: Tensor) -> None:
        """Fill float32 `out` with standard normals for generator = (64-bit key, act index), int64 [2].

        Elements 4b .. 4b+3 of the flattened result come from the words x of counter (b, act low, act high, 0):
        with u = (x >> 8) * 2^-24 and r = sqrt(-2 ln(1 - u)), a pair of words (x0, x1), and likewise (x2, x3),
        gives r(x0) cos(2 pi u(x1)) and r(x0) sin(2 pi u(x1)).
        """
        blocks = -(-out.numel() // 4)
        words = torch.stack((generator & _LOW, (generator >> 32) & _LOW))
        counter = torch.zeros((4, blocks), dtype=torch.int64, device=out.device)
        counter[0] = torch.arange(blocks, device=out.device)
        counter[1:3] = words[:, 1:]
        bits = torch.empty_like(counter)
        self.philox(counter, words[:, 0], bits)
        uniform = (bits >> 8).float() * 2.0**-24
        radius = torch.sqrt(-2 * torch.log1p(-uniform[0::2]))
        angle = 2 * math.pi * uniform[1::2]
        pairs = torch.stack((radius * torch.cos(angle), radius * torch.sin(angle)), dim=1)
        out.copy_(pairs.view(4, blocks).t().reshape(-1)[: out.numel()].view(out.shape))
