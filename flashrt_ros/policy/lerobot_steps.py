# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The steps of processing that LeRobot saves beside a policy since 0.4, and whether they are those that are done here.

Source: lerobot 0.4.0 to 0.6.1, processor/pipeline.py and the processor_pi0.py and processor_pi05.py of its policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flashrt_ros.models.config import read_json
from flashrt_ros.models.lerobot_config import mapped
from flashrt_ros.models.section import Section
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

BEFORE, BEHIND = "policy_preprocessor.json", "policy_postprocessor.json"
NORMALISER, UNNORMALISER = "normalizer_processor", "unnormalizer_processor"

_RELATIVE = ("relative_actions_processor", "delta_actions_processor", "absolute_actions_processor")
"""The second is what 0.5 calls the first."""

_KNOWN = {
    *("rename_observations_processor", "to_batch_processor", "device_processor", NORMALISER, UNNORMALISER, *_RELATIVE),
    *("pi0_new_line_processor", "pi05_prepare_state_tokenizer_processor_step", "tokenizer_processor"),
}


def read_steps(path: Path) -> list[Section]:
    """The steps of a file, in order; BAD_CHECKPOINT where they cannot be read."""
    if not path.exists():
        raise _bad(f"{path}: not found; LeRobot writes it beside the weights, with the statistics, since 0.4")
    steps = Section(read_json(path), path.name).get("steps", None)
    if not isinstance(steps, list):
        raise _bad(f"{path}: no list under the key 'steps'")
    return [Section(step, f"{path}: steps[{index}]") for index, step in enumerate(steps)]


def find_step(path: Path, name: str) -> Section:
    """The only step of a name; BAD_CHECKPOINT where there is none, or more."""
    found = [step for step in read_steps(path) if _name(step) == name]
    if len(found) != 1:
        raise _bad(f"{path}: steps: expected one {name}, found {len(found)}")
    return found[0]


def check_steps(folder: Path, values: Mapping[str, Any]) -> None:
    """Refuse steps that nothing here does, and those that contradict the config.json `values`.

    Raises:
        FlashrtError: BAD_CHECKPOINT.
    """
    root = Section(dict(values), "config.json")
    mode, relative = mapped(root), root.flag("use_relative_actions", False)
    for name in (BEFORE, BEHIND):
        for step in read_steps(folder / name):
            kind, where = _name(step), step.where
            if kind not in _KNOWN:
                raise _bad(f"{where}: {kind} is no step that is known here; if nothing needs it, take it out")
            config = Section(step.get("config", {}), f"{where}.config")
            if kind in (NORMALISER, UNNORMALISER) and "norm_map" in config.values:
                _check_modes(root, config, mode)
            if kind in _RELATIVE and config.flag("enabled", False) != relative:
                config.refuse("enabled", f"{relative}, as use_relative_actions of config.json is")


def _check_modes(root: Section, config: Section, mode: str) -> None:
    theirs = mapped(Section({"normalization_mapping": config.get("norm_map")}, config.where))
    if theirs != mode:
        config.refuse("norm_map", f"the normalization_mapping of config.json, {root.values['normalization_mapping']}")


def _name(step: Section) -> str:
    return step.text("registry_name" if "registry_name" in step.values else "class")


def _bad(message: str) -> FlashrtError:
    return FlashrtError(ErrorCode.BAD_CHECKPOINT, message)
