# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The statistics of state and actions that a checkpoint was trained with: openpi's, LeRobot's and StarVLA's files."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from flashrt_ros.models.checkpoint import check_file
from flashrt_ros.models.section import Section
from flashrt_ros.policy.lerobot_steps import BEFORE, BEHIND, NORMALISER, UNNORMALISER, find_step
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

Style = Literal["openpi", "lerobot", "starvla"]
Part = Literal["state", "actions"]

_NAMES: dict[Style, dict[Part, str]] = {
    "openpi": {"state": "norm_stats.state", "actions": "norm_stats.actions"},
    "lerobot": {"state": "observation.state", "actions": "action"},
    "starvla": {"state": "state", "actions": "action"},
}
_FILE = "norm_stats.json"
_STARVLA_FILE = "dataset_statistics.json"
_STEPS: dict[Part, tuple[str, str]] = {"state": (BEFORE, NORMALISER), "actions": (BEHIND, UNNORMALISER)}


@dataclass(frozen=True, eq=False, slots=True)
class Statistics:
    """Vectors by part and kind: mean, std, q01, q99, min, max, and StarVLA's mask.

    Attributes:
        path: the file, for messages.
        style: whose file it is, and so whose formulas are meant.
        padded: whether vectors may be longer than what they are of.
    """

    path: Path
    style: Style
    vectors: Mapping[Part, Mapping[str, Any]]
    padded: bool = False

    def name(self, part: Part) -> str:
        """What a part is called in the file."""
        return _NAMES[self.style][part]

    def vector(self, part: Part, key: str, length: int) -> np.ndarray:
        """The numbers of one kind, float64 [length].

        Raises:
            FlashrtError: BAD_CHECKPOINT if they are absent, of wrong length, or not finite.
        """
        name, values = f"{self.name(part)}.{key}", self.vectors[part].get(key)
        if not isinstance(values, list):
            raise _bad(f"{self.path}: no list under the key '{name}'; found {_found(self.vectors[part])}")
        if len(values) != length and not (self.padded and len(values) > length):
            raise _bad(f"{self.path}: {name} has {len(values)} values, the config names {length}")
        for index, value in enumerate(values[:length]):
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
                raise _bad(f"{self.path}: {name}[{index}] is {value!r}, not a finite number")
        return np.array(values[:length], np.float64)

    def binary(self, length: int) -> np.ndarray:
        """Which actions are 0 or 1, bool [length]; of StarVLA's, those that its mask leaves out.

        Its generate_action_mask_for_used_keys writes false for the mode "binary" alone
        (starVLA/starVLA at 0ed0aad, dataloader/gr00t_lerobot/datasets.py:2098).
        """
        mask = self.vectors["actions"].get("mask") if self.style == "starvla" else None
        if mask is None:
            return np.zeros(length, bool)
        if not isinstance(mask, list) or len(mask) != length or not all(isinstance(value, bool) for value in mask):
            raise _bad(f"{self.path}: {self.name('actions')}.mask is {mask!r}; expected {length} times true or false")
        return ~np.array(mask)

    def length(self, part: Part) -> int:
        """How many numbers a part has; 0 where there is no list."""
        return next((len(values) for values in self.vectors[part].values() if isinstance(values, list)), 0)


def none_needed(folder: Path) -> Statistics:
    """Statistics of a checkpoint whose values are raw."""
    return Statistics(folder / _FILE, "openpi", {"state": {}, "actions": {}})


def read_openpi(folder: Path, asset: str = "") -> Statistics:
    """Read norm_stats.json: of the folder, else of the asset below assets/, which has a name if there are several.

    Raises:
        FlashrtError: BAD_CHECKPOINT, there is none, or more than one, or it is not of that form.
    """
    assets = folder / "assets"
    found = [assets / asset / _FILE] if asset else [folder / _FILE] * (folder / _FILE).exists()
    found = found or sorted(assets.rglob(_FILE)) or [folder / _FILE]
    if len(found) > 1:
        names = ", ".join(str(path.parent.relative_to(assets)) for path in found[:10])
        raise _bad(f"{assets}: holds the statistics of {names}; choose one: asset in flashrt.json")
    path = found[0]
    content = _read_json(path)
    statistics = content.get("norm_stats") if isinstance(content, dict) else None
    if not isinstance(statistics, dict):
        raise _bad(f"{path}: no object under the key 'norm_stats'; found {_found(content)}")
    vectors: dict[Part, Mapping[str, Any]] = {}
    for part, name in _NAMES["openpi"].items():
        found_part = statistics.get(name.rpartition(".")[2])
        if not isinstance(found_part, dict):
            raise _bad(f"{path}: no object under the key '{name}'; found {_found(statistics)}")
        vectors[part] = found_part
    return Statistics(path, "openpi", vectors, padded=path.parent != folder)


def read_hybrid(folder: Path, dataset: str) -> Statistics:
    """Read norm_stats.json, or what StarVLA writes, dataset_statistics.json, of a dataset unless it has only one.

    Raises:
        FlashrtError: BAD_CHECKPOINT, there is neither or both, or one is not of that form.
    """
    path = folder / _STARVLA_FILE
    if not path.exists():
        return read_openpi(folder)
    if (folder / _FILE).exists():
        raise _bad(f"{folder}: holds both {_FILE} and {_STARVLA_FILE}; keep the one that it was trained with")
    content = _read_json(path)
    if not isinstance(content, dict) or not content:
        raise _bad(f"{path}: no object with the statistics of a dataset")
    if not dataset and len(content) > 1:
        raise _bad(f"{path}: holds the statistics of {_found(content)}; choose one: dataset in config.json's flashrt")
    dataset = dataset or next(iter(content))
    found = content.get(dataset)
    if not isinstance(found, dict):
        raise _bad(f"{path}: no object under the key '{dataset}'; found {_found(content)}")
    vectors: dict[Part, Mapping[str, Any]] = {}
    for part, name in _NAMES["starvla"].items():
        part_found = found.get(name, {})  # a training without a state has no statistics of one
        if not isinstance(part_found, dict):
            raise _bad(f"{path}: no object under the key '{name}'; found {type(part_found).__name__}")
        vectors[part] = part_found
    return Statistics(path, "starvla", vectors)


def read_lerobot(folder: Path) -> Statistics:
    """Read the files of LeRobot's processor steps: policy_preprocessor.json, policy_postprocessor.json and theirs.

    Raises:
        FlashrtError: BAD_CHECKPOINT, a file is absent or has no such step, or one with another epsilon.
    """
    vectors: dict[Part, Mapping[str, Any]] = {}
    for part, (name, kind) in _STEPS.items():
        path = folder / name
        step = find_step(path, kind)
        if "state_file" not in step.values:
            raise _bad(
                f"{path}: {kind} has no state_file, and so no statistics: those of a base policy come with its "
                "fine-tuning (if it takes and gives raw numbers: normalisation none in flashrt.json)"
            )
        Section(step.get("config", {}), f"{step.where}.config").only("eps", 1e-8)
        tensors = _read_tensors(folder / Path(step.text("state_file")).name)
        prefix = f"{_NAMES['lerobot'][part]}."
        vectors[part] = {
            key.removeprefix(prefix): value.double().ravel().tolist()
            for key, value in tensors.items()
            if key.startswith(prefix)
        }
    return Statistics(folder / _STEPS["state"][0], "lerobot", vectors)


def _bad(message: str) -> FlashrtError:
    return FlashrtError(ErrorCode.BAD_CHECKPOINT, message)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        needs = f"the checkpoint needs its normalisation statistics, there or as assets/ASSET/{_FILE}"
        raise _bad(f"{path}: {error.strerror}; {needs}") from error
    except (ValueError, RecursionError) as error:
        raise _bad(f"{path}: not JSON: {error}") from error


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        check_file(path)
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise _bad(f"{path}: cannot be read: {error}") from error


def _found(content: object) -> str:
    return ", ".join(sorted(content)[:10]) or "nothing" if isinstance(content, dict) else type(content).__name__
