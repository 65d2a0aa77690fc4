# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flashrt_ros.models.tiny_pi0 import write_tiny_pi0
from flashrt_ros.policy.opening import open_checkpoint
from flashrt_ros.runtime.errors import ErrorCode

RELATIVE = [{"registry_name": "relative_actions_processor", "config": {"enabled": True, "exclude_joints": ["gripper"]}}]


def change(folder: Path, name: str, **changes: Any) -> None:
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def steps(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads((folder / "policy_preprocessor.json").read_text())["steps"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_pi0(tmp_path, "pi0", "lerobot")


def test_a_step_that_nothing_here_does_is_refused(folder: Path, refuses) -> None:
    known = steps(folder)
    change(folder, "policy_preprocessor.json", steps=[*known, {"registry_name": "tokenizer_processor"}])
    open_checkpoint(folder)
    change(folder, "policy_preprocessor.json", steps=[{"class": "mine.FlipJoints"}, *known])
    with refuses(ErrorCode.BAD_CHECKPOINT, "policy_preprocessor.json: steps[0]: mine.FlipJoints is no step"):
        open_checkpoint(folder)


def test_steps_that_contradict_the_config_are_refused(folder: Path, refuses) -> None:
    known = steps(folder)
    known[1]["config"]["norm_map"] = {"VISUAL": "IDENTITY", "STATE": "MEAN_STD", "ACTION": "MEAN_STD"}
    change(folder, "policy_preprocessor.json", steps=known)
    open_checkpoint(folder)
    change(folder, "policy_preprocessor.json", steps=[*known, *RELATIVE])
    with refuses(ErrorCode.BAD_CHECKPOINT, "steps[2].config.enabled: expected False, as use_relative_actions"):
        open_checkpoint(folder)
    change(folder, "config.json", use_relative_actions=True)
    assert open_checkpoint(folder).model.config.action_mode == "delta"
    known[1]["config"]["norm_map"]["ACTION"] = known[1]["config"]["norm_map"]["STATE"] = "MIN_MAX"
    change(folder, "policy_preprocessor.json", steps=known)
    with refuses(ErrorCode.BAD_CHECKPOINT, "steps[1].config.norm_map: expected the normalization_mapping"):
        open_checkpoint(folder)


@pytest.mark.parametrize("content", [{"steps": 3}, {"steps": [3]}, {"steps": [{}]}, []])
def test_what_is_no_list_of_steps_is_refused(folder: Path, content: Any, refuses) -> None:
    (folder / "policy_preprocessor.json").write_text(json.dumps(content))
    with refuses(ErrorCode.BAD_CHECKPOINT, "policy_preprocessor.json"):
        open_checkpoint(folder)
