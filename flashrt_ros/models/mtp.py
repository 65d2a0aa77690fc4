# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The multi-token-prediction weights that a Qwen3.5 checkpoint may carry (`mtp.*`)."""

from __future__ import annotations

import torch

from flashrt_ros.models.backbone_config import FULL, TextConfig
from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.qwen3_5_text import layer_weights
from flashrt_ros.models.weights import Part, Weight, centred, weight


def mtp_weights(config: TextConfig, dtype: torch.dtype, checkpoint: Checkpoint) -> list[Weight]:
    """One full-attention layer, its projection and its norms; nothing if the file has no `mtp.` tensor."""
    if not any(name.startswith("mtp.") for name in checkpoint.shapes):
        return []
    width = config.hidden_size
    return [
        weight("mtp.fc", dtype, Part("mtp.fc.weight", (width, 2 * width))),
        centred("mtp.embedding_norm", "mtp.pre_fc_norm_embedding.weight", width),
        centred("mtp.hidden_norm", "mtp.pre_fc_norm_hidden.weight", width),
        *layer_weights(config, dtype, "mtp.0.", "mtp.layers.0.", FULL),
        centred("mtp.final_norm", "mtp.norm.weight", width),
    ]
