# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Folders that are near to a checkpoint which can be served: what they are, and what makes one of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

_BELOW = ("*/model.safetensors", "*/config.json", "checkpoints/*/pretrained_model/config.json")
"""Where a folder of a training run keeps its checkpoints: openpi's, and LeRobot's from below and from above."""


def without_config(folder: Path) -> FlashrtError:
    """What to say about a folder that has no config.json."""
    return FlashrtError(ErrorCode.BAD_CHECKPOINT, f"{folder / 'config.json'}: not found; {_instead(folder)}")


def _instead(folder: Path) -> str:
    if (folder / "params").is_dir():
        return "this is openpi's for JAX: its examples/convert_jax_model_to_pytorch.py makes one for PyTorch of it"
    if (folder / "config.yaml").exists() and (folder / "dataset_statistics.json").exists():
        return (
            "this is a run of StarVLA: config.json is that of its Qwen3.5 with framework and datasets of config.yaml, "
            "and a section flashrt; tokenizer.json, dataset_statistics.json and *.safetensors stand beside it"
        )
    if (folder / "model.safetensors").exists():
        return (
            "openpi's training writes none: write what its converter does, "
            '{"action_dim": 32, "action_horizon": N, "paligemma_variant": "gemma_2b", "action_expert_variant": '
            '"gemma_300m"}, with the values of the training config'
        )
    below = [str(path.parent) for pattern in _BELOW for path in folder.glob(pattern)]
    newest = max(below, key=lambda name: (len(name), name), default="")  # step 1000 comes after step 900
    return f"did you mean {newest}?" if newest else "a checkpoint folder holds it"


def check_not_foreign(folder: Path, values: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse what config.json `values` or the tensors' `names` give away as of another kind.

    Raises:
        FlashrtError: BAD_CHECKPOINT: an adapter without its model, or a LeRobot folder from before 0.4.
    """
    if (folder / "adapter_config.json").exists() or values.get("use_peft") is True:
        raise FlashrtError(
            ErrorCode.BAD_CHECKPOINT,
            f"{folder}: is a PEFT adapter (LoRA), which is not served by itself: merge it into its model "
            "(merge_and_unload), save that, and leave adapter_config.json and use_peft out",
        )
    # lerobot 0.3.3, policies/pi0/modeling_pi0.py: images are padded at the left and the top, statistics are tensors.
    if "resize_imgs_with_padding" in values or any(name.startswith("normalize_inputs.") for name in names):
        raise FlashrtError(
            ErrorCode.BAD_CHECKPOINT,
            f"{folder}: was written by LeRobot before 0.4, whose pi0 had other images and normalised within; it is not "
            "served: fine-tune with 0.4 or later",
        )


def check_hybrid(folder: Path, values: Mapping[str, Any]) -> None:
    """Refuse a config.json without any part of a Qwen3.5 with a head, where the tensors are none of pi0's either."""
    if not {"text_config", "framework"} & values.keys():
        kind = f" (config.json has type {values['type']!r})" if "type" in values else ""
        raise FlashrtError(
            ErrorCode.BAD_CHECKPOINT,
            f"{folder}: is no policy that is served{kind}: its tensors are not those of pi0 or pi0.5 "
            "(paligemma_with_expert.*), and config.json has no text_config or framework of a Qwen3.5 with its head",
        )
