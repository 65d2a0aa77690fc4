# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Moving rows: embeddings, caches, tables, cursors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Rows:
    """Operations that move rows to where an integer buffer says."""

    def embed(self, tokens: Tensor, table: Tensor, length: Tensor, out: Tensor) -> None:
        """out[i] = table[tokens[i]] for i < length; the padding after it is zero."""
        live = int(length)
        torch.index_select(table, 0, tokens[:live], out=out[:live])
        out[live:] = 0

    def replace_rows(self, index: Tensor, source: Tensor, out: Tensor) -> None:
        """out[i] = source[index[i]] where index[i] >= 0; other rows stay."""
        chosen = (index >= 0).nonzero()[:, 0]
        out[chosen] = source[index[chosen]]

    def write_rows(self, x: Tensor, start: Tensor, length: Tensor, out: Tensor) -> None:
        """out[start + i] = x[i] for i < length."""
        first, live = int(start), int(length)
        out[first : first + live] = x[:live]

    def take_row(self, table: Tensor, index: Tensor, out: Tensor) -> None:
        """Set out = table[index]."""
        out.copy_(table[int(index)])

    def copy(self, x: Tensor, out: Tensor) -> None:
        """Set out = x."""
        out.copy_(x)

    def clear_if(self, flag: Tensor, out: Sequence[Tensor]) -> None:
        """Zero every tensor of `out` if flag is not 0."""
        if int(flag):
            for tensor in out:
                tensor.zero_()

    def clear(self, out: Tensor) -> None:
        """Set out = 0."""
        out.zero_()

    def set_sum(self, a: Tensor, b: Tensor, out: Tensor) -> None:
        """Set out = a + b, for integer buffers."""
        torch.add(a, b, out=out)

    def increment(self, out: Tensor) -> None:
        """Set out = out + 1, for an integer buffer."""
        out.add_(1)

    def advance(self, length: Tensor, rope_length: Tensor, position: Tensor, rope_delta: Tensor) -> None:
        """Move past `length` rows that took `rope_length` rotary positions.

        The next row has rotary position position + rope_delta; both cursors are int64 [1].
        """
        position.add_(length)
        rope_delta.add_(rope_length - length)
