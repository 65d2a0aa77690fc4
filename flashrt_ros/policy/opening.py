# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint folder holds, read and checked as far as that goes without its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.config import read_config, read_json
from flashrt_ros.models.hybrid import Hybrid
from flashrt_ros.models.pi0 import Pi0, is_pi0
from flashrt_ros.models.policy_model import PolicyConfig, PolicyModel
from flashrt_ros.policy.normalise import Normaliser
from flashrt_ros.policy.pi0_prompts import Pi0Prompts, Pi05Prompts
from flashrt_ros.policy.prompts import Prompts, TemplatePrompts
from flashrt_ros.policy.statistics import Statistics, none_needed, read_lerobot, read_openpi
from flashrt_ros.policy.text import TextTokenizer, find_tokenizer
from flashrt_ros.policy.tokenizer import Tokenizer
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

NAMES_FILE = "flashrt.json"
"""Beside a checkpoint of others: what their files do not say."""


@dataclass(frozen=True, eq=False, slots=True)
class Opened:
    """A folder's model, and what turns observations and instructions into its inputs."""

    model: PolicyModel
    normaliser: Normaliser
    prompts: Prompts
    tokenizer: TextTokenizer

    def manifest(self) -> dict[str, dict[str, str]]:
        """What makes two policies the same, the files' digests taken."""
        return {
            **self.model.manifest(),
            "tokenizer": {"sha256": self.tokenizer.fingerprint},
            "normaliser": {"convention": self.normaliser.convention, "sha256": self.normaliser.fingerprint},
        }


def open_checkpoint(path: str | Path, dtype: torch.dtype = torch.float32, views: Sequence[str] | None = None) -> Opened:
    """Read configuration, tokenizer, statistics and the headers of the tensors.

    Args:
        path: the folder.
        dtype: what the policy is to compute in.
        views: the cameras there are, for a policy that can do with some of its own.

    Raises:
        FlashrtError: BAD_CHECKPOINT, naming what is wrong.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise FlashrtError(
            ErrorCode.BAD_CHECKPOINT, f"checkpoint {folder}: no such folder; name the one with config.json"
        )
    values = read_json(folder / "config.json")
    checkpoint = Checkpoint(folder)
    return _open_pi0(folder, values, checkpoint, dtype, views) if is_pi0(checkpoint) else _open_hybrid(folder, dtype)


def open_config(folder: Path) -> PolicyConfig:
    """The configuration alone; BAD_CHECKPOINT as `open_checkpoint`."""
    values = read_json(folder / "config.json")
    return read_config(values) if "flashrt" in values else open_checkpoint(folder).model.config


def open_normaliser(folder: Path) -> Normaliser:
    """The statistics alone; BAD_CHECKPOINT as `open_checkpoint`."""
    values = read_json(folder / "config.json")
    if "flashrt" in values:
        return _hybrid_normaliser(folder, read_config(values))
    return open_checkpoint(folder).normaliser


def _open_hybrid(folder: Path, dtype: torch.dtype) -> Opened:
    tokenizer = Tokenizer(folder / "tokenizer.json")
    model = Hybrid.from_folder(folder, dtype)
    config = model.config
    prompts = TemplatePrompts(config.instruction_template, config.max_instruction_tokens, tokenizer)
    _check_vocabulary(tokenizer, config.text.vocab_size)
    return Opened(model, _hybrid_normaliser(folder, config), prompts, tokenizer)


def _hybrid_normaliser(folder: Path, config: PolicyConfig) -> Normaliser:
    statistics = none_needed(folder) if config.normalisation == "none" else read_openpi(folder)
    return Normaliser.of(statistics, config.normalisation, config.state_names, config.action_names)


def _open_pi0(
    folder: Path, values: dict[str, Any], checkpoint: Checkpoint, dtype: torch.dtype, views: Sequence[str] | None
) -> Opened:
    extra = read_json(folder / NAMES_FILE) if (folder / NAMES_FILE).exists() else {}
    asset = extra.pop("asset", "")
    statistics = _pi0_statistics(folder, values, extra, asset)
    widths = (statistics.length("state"), statistics.length("actions"))
    model = Pi0(values, extra, checkpoint, dtype, widths, views)
    config = model.config
    normaliser = Normaliser.of(statistics, config.normalisation, config.state_names, config.action_names)
    tokenizer = find_tokenizer(folder)
    _check_vocabulary(tokenizer, config.vocab_size)
    limit = config.max_instruction_tokens
    prompts = Pi05Prompts(tokenizer, limit, config) if config.adaptive else Pi0Prompts(tokenizer, limit)
    return Opened(model, normaliser, prompts, tokenizer)


def _pi0_statistics(folder: Path, values: Mapping[str, Any], extra: Mapping[str, Any], asset: str) -> Statistics:
    if extra.get("normalisation") == "none":
        return none_needed(folder)
    return read_lerobot(folder) if "input_features" in values else read_openpi(folder, asset)


def _check_vocabulary(tokenizer: TextTokenizer, vocabulary: int) -> None:
    if tokenizer.largest_token >= vocabulary:
        raise FlashrtError(
            ErrorCode.BAD_CHECKPOINT,
            f"{tokenizer.path.name} gives tokens up to {tokenizer.largest_token}, the checkpoint's vocab_size is "
            f"{vocabulary}; they are of different checkpoints",
        )
