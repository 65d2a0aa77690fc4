# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The multi-token-prediction layer that a Qwen3.5 checkpoint may carry (`mtp.*`): it drafts what is said next.

From the hidden state h of row t and the embedding of token t + 1 it makes the hidden state that predicts token t + 2:
norm(layer(W [norm(embedding) ; norm(h)])) (Qwen3.5's MTP; DeepSeek-V3, arXiv 2412.19437, section 2.2).
"""

from __future__ import annotations

import torch
from torch import Tensor

from flashrt_ros.models.backbone_config import FULL, TextConfig
from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.ops import Ops
from flashrt_ros.models.qwen3_5_text import POSITION, Angles, Cache, attention, layer_weights, mlp, remember
from flashrt_ros.models.weights import Part, Scope, Weight, centred, weight
from flashrt_ros.runtime.buffers import Buffer, BufferSet


def has_mtp(checkpoint: Checkpoint) -> bool:
    """Whether the files hold any `mtp.` tensor."""
    return any(name.startswith("mtp.") for name in checkpoint.shapes)


class Mtp:
    """One full-attention layer with rows of its own.

    The row of token t + 1 stands at t + 1, so that the context's cursor bounds these rows too; row 0, which no hidden
    state comes before, is written and never read. The row at the cursor belongs to a token that is not in the context.
    """

    def __init__(self, config: TextConfig, dtype: torch.dtype, max_rows: int, drafts: int) -> None:
        """`drafts` tokens are drafted at a time: the first from the context, each other from the draft before it."""
        self.config = config
        self.dtype = dtype
        self.max_rows = max_rows
        self.drafts = drafts

    def weights(self) -> list[Weight]:
        """The stored weights; the projection in two halves, of the embedding and of the hidden state."""
        c, width = self.config, self.config.hidden_size
        whole = (width, 2 * width)
        embedding = Part("mtp.fc.weight", whole, lambda w: w[:, :width])
        hidden = Part("mtp.fc.weight", whole, lambda w: w[:, width:])
        return [
            weight("mtp.fc_embedding", self.dtype, embedding, shape=(width, width)),
            weight("mtp.fc_hidden", self.dtype, hidden, shape=(width, width)),
            centred("mtp.embedding_norm", "mtp.pre_fc_norm_embedding.weight", width),
            centred("mtp.hidden_norm", "mtp.pre_fc_norm_hidden.weight", width),
            *layer_weights(c, self.dtype, "mtp.0.", "mtp.layers.0.", FULL),
            centred("mtp.final_norm", "mtp.norm.weight", width),
        ]

    def buffers(self) -> list[Buffer]:
        """Its KV, with room for the drafts behind a full context."""
        rows = (self.max_rows + self.drafts, self.config.kv_heads, self.config.head_dim)
        return [Buffer(f"mtp.{part}", rows, self.dtype, "state", "context", rows=POSITION) for part in ("key", "value")]

    def remember(
        self,
        ops: Ops,
        b: BufferSet,
        embedding: Tensor,
        hidden: Tensor,
        angles: Angles,
        position: Tensor,
        length: Tensor,
    ) -> None:
        """Append rows from `position` on, of which `length` count, and draft nothing from them."""
        x = self._joined(ops, b, embedding, hidden)
        remember(ops, self.config, Scope(b, "mtp.0."), x, angles, Cache(b["mtp.key"], b["mtp.value"], position, length))

    def append(
        self, ops: Ops, b: BufferSet, embedding: Tensor, hidden: Tensor, angles: Angles, start: Tensor, length: Tensor
    ) -> Tensor:
        """Append rows from start + 1 on, of which `length` count, and return their hidden states, [n, hidden].

        Row i has the embedding of token start + 1 + i, and the hidden state of the row before that.
        """
        c, layer = self.config, Scope(b, "mtp.0.")
        x = self._joined(ops, b, embedding, hidden)
        attention(ops, c, layer, x, angles, Cache(b["mtp.key"][1:], b["mtp.value"][1:], start, length))
        mlp(ops, c, layer, x)
        ops.norm(x, b["mtp.final_norm"], x, c.eps)
        return x

    def _joined(self, ops: Ops, b: BufferSet, embedding: Tensor, hidden: Tensor) -> Tensor:
        """W [norm(embedding); norm(hidden)]."""
        eps, w = self.config.eps, Scope(b, "mtp.")
        x, h = (ops.scratch(tuple(hidden.shape), self.dtype) for _ in range(2))
        ops.norm_linear(embedding, w["embedding_norm"], w["fc_embedding"], x, eps)
        ops.norm(hidden, w["hidden_norm"], h, eps)
        ops.linear(h, w["fc_hidden"], x, add=x)
        return x
