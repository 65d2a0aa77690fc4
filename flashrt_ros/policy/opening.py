# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint folder holds, read and checked as far as that goes without its weights."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.config import HybridConfig, read_config, read_json
from flashrt_ros.models.hybrid import Hybrid
from flashrt_ros.models.pi0 import Pi0, is_adaptive, is_pi0
from flashrt_ros.models.pi0_config import Pi0Config, read_pi0
from flashrt_ros.models.policy_model import PolicyConfig, PolicyModel
from flashrt_ros.models.section import Section
from flashrt_ros.policy.foreign import check_hybrid, check_not_foreign, without_config
from flashrt_ros.policy.lerobot_steps import check_steps
from flashrt_ros.policy.normalise import Normaliser
from flashrt_ros.policy.pi0_prompts import Pi0Prompts, Pi05Prompts
from flashrt_ros.policy.prompts import Prompts, TemplatePrompts
from flashrt_ros.policy.statistics import Statistics, none_needed, read_hybrid, read_lerobot, read_openpi
from flashrt_ros.policy.text import TextTokenizer, find_tokenizer
from flashrt_ros.policy.tokenizer import Tokenizer
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.progress import Tell, tell_nobody

NAMES_FILE = "flashrt.json"
"""Beside a checkpoint of others: what their files do not say."""


@dataclass(frozen=True, eq=False, slots=True)
class Opened:
    """A folder's model, and what turns observations and instructions into its inputs."""

    model: PolicyModel
    normaliser: Normaliser
    prompts: Prompts

    def manifest(self, tell: Tell = tell_nobody) -> dict[str, dict[str, str]]:
        """What makes two policies the same, the files' digests taken."""
        return {
            **self.model.manifest(tell),
            "tokenizer": {"sha256": self.prompts.tokenizer.fingerprint},
            "normaliser": {"convention": self.normaliser.convention, "sha256": self.normaliser.fingerprint},
        }


class Folder(Protocol):
    """A checkpoint's parts, each read by itself, so that trouble with one hides no other's: BAD_CHECKPOINT."""

    def model(self, dtype: torch.dtype, views: Sequence[str] | None, fp8: bool = False) -> PolicyModel:
        """The model; its tensors are those that its configuration asks for. NOT_SUPPORTED if it has no FP8 weights."""

    def config(self, views: Sequence[str] | None = None) -> PolicyConfig:
        """What the model is configured by."""

    def normaliser(self) -> Normaliser:
        """The statistics, in the checkpoint's convention."""

    def tokenizer(self) -> TextTokenizer:
        """The tokenizer; its tokens are in the vocabulary."""

    def prompts(self) -> Prompts:
        """The prompts."""


def open_folder(path: str | Path, tensors: Checkpoint | None = None) -> Folder:
    """Find out what a folder holds; BAD_CHECKPOINT where that cannot be told. `tensors` take the place of its files."""
    folder = Path(path)
    if not folder.is_dir():
        message = f"checkpoint {folder}: no such folder; name the one with config.json"
        raise FlashrtError(ErrorCode.BAD_CHECKPOINT, message)
    if not os.access(folder, os.R_OK | os.X_OK, effective_ids=True):
        raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"checkpoint {folder}: may not be read; see its permissions")
    if not (folder / "config.json").exists():
        raise without_config(folder)
    values = read_json(folder / "config.json")
    if "flashrt" in values:
        return HybridFolder(folder, values, tensors)
    check_not_foreign(folder, values, ())
    checkpoint = tensors if tensors is not None else Checkpoint(folder)
    check_not_foreign(folder, values, checkpoint.shapes)
    if is_pi0(checkpoint):
        return Pi0Folder(folder, values, checkpoint)
    check_hybrid(folder, values)
    return HybridFolder(folder, values, tensors)


def open_checkpoint(
    path: str | Path,
    dtype: torch.dtype = torch.float32,
    views: Sequence[str] | None = None,
    tensors: Checkpoint | None = None,
    fp8: bool = False,
) -> Opened:
    """Read configuration, tokenizer, statistics and the headers of the tensors.

    Args:
        path: the folder.
        dtype: what the policy is to compute in.
        views: the cameras there are, for a policy that can do with some of its own.
        tensors: weights in place of those in the folder's files.
        fp8: store the weights of the action expert as FP8.

    Raises:
        FlashrtError: BAD_CHECKPOINT, naming what is wrong; NOT_SUPPORTED, the policy has no FP8 weights.
    """
    folder = open_folder(path, tensors)
    model, normaliser = folder.model(dtype, views, fp8), folder.normaliser()
    return Opened(model, normaliser, folder.prompts())


class HybridFolder:
    """config.json with the section `flashrt`, tokenizer.json, norm_stats.json or dataset_statistics.json."""

    def __init__(self, folder: Path, values: dict[str, Any], tensors: Checkpoint | None) -> None:
        self._folder = folder
        self._values = values
        self._tensors = tensors

    def model(self, dtype: torch.dtype, views: Sequence[str] | None, fp8: bool = False) -> PolicyModel:
        """See Folder.model; it sees all its views, and has no FP8 weights."""
        if fp8:
            message = f"weights 'fp8': {self._folder} is neither pi0 nor pi0.5; use weights auto"
            raise FlashrtError(ErrorCode.NOT_SUPPORTED, message)
        return Hybrid.from_folder(self._folder, dtype, self._tensors)

    def config(self, views: Sequence[str] | None = None) -> HybridConfig:
        """See Folder.config."""
        return read_config(self._values)

    def normaliser(self) -> Normaliser:
        """See Folder.normaliser."""
        config = self.config()
        scales = config.scales
        raw = config.normalisation == scales.state == "none"
        statistics = none_needed(self._folder) if raw else read_hybrid(self._folder, scales.dataset)
        return Normaliser.of(statistics, config.normalisation, config.state_names, config.action_names, scales)

    def tokenizer(self) -> Tokenizer:
        """See Folder.tokenizer."""
        tokenizer = Tokenizer(self._folder / "tokenizer.json")
        _check_vocabulary(tokenizer, tokenizer.largest_token, self.config().text.vocab_size)
        return tokenizer

    def prompts(self) -> Prompts:
        """See Folder.prompts."""
        config = self.config()
        template, limit = config.instruction_template, config.max_instruction_tokens
        return TemplatePrompts(template, limit, self.tokenizer(), trimmed=config.layout == "starvla")


class Pi0Folder:
    """What openpi or LeRobot write, a tokenizer, and a flashrt.json if something is to be named."""

    def __init__(self, folder: Path, values: dict[str, Any], checkpoint: Checkpoint) -> None:
        self._folder = folder
        self._values = values
        self._checkpoint = checkpoint
        extra = read_json(folder / NAMES_FILE) if (folder / NAMES_FILE).exists() else {}
        self._asset = Section(extra, NAMES_FILE).text("asset") if "asset" in extra else ""
        self._extra = {key: value for key, value in extra.items() if key != "asset"}

    def model(self, dtype: torch.dtype, views: Sequence[str] | None, fp8: bool = False) -> PolicyModel:
        """See Folder.model."""
        return Pi0(self._values, self._extra, self._checkpoint, dtype, self._widths(), views, fp8)

    def config(self, views: Sequence[str] | None = None) -> Pi0Config:
        """See Folder.config."""
        return read_pi0(self._values, self._extra, is_adaptive(self._checkpoint), self._widths(), views)

    def normaliser(self) -> Normaliser:
        """See Folder.normaliser."""
        config = self.config()
        statistics = self._statistics()
        return Normaliser.of(statistics, config.normalisation, config.state_names, config.action_names)

    def tokenizer(self) -> TextTokenizer:
        """See Folder.tokenizer."""
        tokenizer = find_tokenizer(self._folder)
        # PaliGemma's tokenizer.json has a special token for images behind the vocabulary; no instruction may hold one.
        largest = max(tokenizer.largest_text_token, tokenizer.begin_token())
        _check_vocabulary(tokenizer, largest, self.config().vocab_size)
        return tokenizer

    def prompts(self) -> Prompts:
        """See Folder.prompts."""
        config, tokenizer = self.config(), self.tokenizer()
        if config.state_prompt == "none":
            verbatim = config.convention == "lerobot" and not config.adaptive
            return Pi0Prompts(tokenizer, config.max_instruction_tokens, verbatim)
        padding = config.state_width - config.state_dim if config.state_prompt == "padded" else 0
        return Pi05Prompts(tokenizer, config.max_instruction_tokens, config, padding)

    def _statistics(self) -> Statistics:
        if self._extra.get("normalisation") == "none":
            return none_needed(self._folder)
        if "input_features" in self._values:
            check_steps(self._folder, self._values)
            return read_lerobot(self._folder)
        return read_openpi(self._folder, self._asset)

    def _widths(self) -> tuple[int, int] | None:
        """How many numbers openpi's statistics have, which its config.json does not say."""
        if "input_features" in self._values or {"state_names", "action_names"} <= self._extra.keys():
            return None
        statistics = self._statistics()
        return statistics.length("state"), statistics.length("actions")


def _check_vocabulary(tokenizer: TextTokenizer, largest: int, vocabulary: int) -> None:
    if largest >= vocabulary:
        raise FlashrtError(
            ErrorCode.BAD_CHECKPOINT,
            f"{tokenizer.path.name} gives tokens up to {largest}, the checkpoint's vocab_size is {vocabulary}; they "
            "are of different checkpoints",
        )
