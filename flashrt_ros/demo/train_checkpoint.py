# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The trained policy's folders: what training starts from, and what it ships."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from flashrt_ros.models.backbone_config import FULL
from flashrt_ros.models.checkpoint import Checkpoint, canonical
from flashrt_ros.models.config import HybridConfig, read_config, read_json
from flashrt_ros.models.tiny import write_tiny_checkpoint

MODEL_FILE, STATISTICS_FILE = "model.safetensors", "norm_stats.json"

_PREFIX = "qwen_vl_interface.model."
_OVERRIDES: dict[str, Any] = {"name": "button-table", "text_config": {"intermediate_size": 640}, "max_rows": 2048}


def write_start(folder: Path, seed: int, **overrides: Any) -> None:
    """Write what training starts from: config, tokenizer and random weights; `overrides` as for the tiny policy.

    It is that of flashrt_ros.models.tiny but for a narrower feed-forward, so that the weights with their MTP layer
    stay below 15 MB.
    """
    write_tiny_checkpoint(folder, seed, **{**_OVERRIDES, **overrides})


def read_start(folder: Path, seed: int) -> tuple[HybridConfig, dict[str, Tensor]]:
    """Return config and weights, float32 under canonical names, with an MTP layer added."""
    config = read_config(read_json(folder / "config.json"))
    checkpoint = Checkpoint(folder)
    weights = {name: checkpoint.read(name).float() for name in sorted(checkpoint.shapes)}
    generator = torch.Generator().manual_seed(seed + 1)
    for name, shape in _mtp_shapes(config, weights).items():
        noise = torch.randn(shape, generator=generator)
        weights[name] = noise * shape[-1] ** -0.5 if len(shape) > 1 else torch.zeros(shape)
    return config, weights


def _mtp_shapes(config: HybridConfig, weights: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    width = config.text.hidden_size
    model = f"language_model.layers.{config.text.layer_types.index(FULL)}."
    layer = {name.replace(model, "mtp.layers.0."): tuple(w.shape) for name, w in weights.items() if model in name}
    norms = {f"mtp.{name}.weight": (width,) for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")}
    return {"mtp.fc.weight": (width, 2 * width), **layer, **norms}


def write_policy(
    folder: Path, start: Path, weights: Mapping[str, Tensor], statistics: Mapping[str, Any], dtype: torch.dtype
) -> None:
    """Write a checkpoint folder that load_policy reads, in the form of StarVLA's checkpoints.

    Args:
        folder: is made, or its files replaced.
        start: where training started; its config and tokenizer are taken over.
        weights: under canonical names.
        statistics: see Dataset.statistics.
        dtype: of the file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    values = read_json(start / "config.json")
    values["flashrt"]["trained"] = True
    values["text_config"]["mtp_num_hidden_layers"] = 1
    _write_json(folder / "config.json", values)
    _write_json(folder / STATISTICS_FILE, {"norm_stats": statistics})
    shutil.copyfile(start / "tokenizer.json", folder / "tokenizer.json")
    tensors = {_stored_name(name): w.detach().to(dtype).cpu().contiguous() for name, w in weights.items()}
    save_file(tensors, folder / MODEL_FILE, {"format": "pt"})


def _stored_name(name: str) -> str:
    inner = "model." if name.startswith(("language_model.", "visual.")) else ""
    stored = name if name.startswith("action_model.") else f"{_PREFIX}{inner}{name}"
    assert canonical(stored) == name
    return stored


def _write_json(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
