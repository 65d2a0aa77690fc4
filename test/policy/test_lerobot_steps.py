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


def saved(kind: str) -> list[dict[str, Any]]:
    """The preprocessor of lerobot 0.6.1, which saves its tokenizer too, for six joints."""
    state, action = {"type": "STATE", "shape": [6]}, {"type": "ACTION", "shape": [6]}
    mode = "MEAN_STD" if kind == "pi0" else "QUANTILES"
    relative = {"enabled": False, "exclude_joints": ["gripper"], "action_names": None}
    normaliser = {
        "eps": 1e-8,
        "features": {"observation.state": state, "action": action},
        "norm_map": {"VISUAL": "IDENTITY", "STATE": mode, "ACTION": mode},
    }
    file = "policy_preprocessor_step_1_normalizer_processor.safetensors"
    steps: list[dict[str, Any]] = [
        {"registry_name": "rename_observations_processor", "config": {"rename_map": {}}},
        {"registry_name": "to_batch_processor", "config": {}},
        {"registry_name": "relative_actions_processor", "config": relative},
        {"registry_name": "normalizer_processor", "config": normaliser, "state_file": file},
        {
            "registry_name": "tokenizer_processor",
            "config": {"max_length": 48, "task_key": "task", "tokenizer_name": "tokenizer"},
            "artifacts": {"tokenizer_name": "tokenizer"},
        },
        {"registry_name": "device_processor", "config": {"device": "cpu", "float_dtype": None}},
    ]
    of_kind = {"pi0": "pi0_new_line_processor", "pi05": "pi05_prepare_state_tokenizer_processor_step"}
    return [*steps[:4], {"registry_name": of_kind[kind], "config": {}}, *steps[4:]]


@pytest.mark.parametrize("kind", ["pi0", "pi05"])
def test_what_lerobot_saves_is_known(kind: Any, tmp_path: Path) -> None:
    folder = write_tiny_pi0(tmp_path, kind, "lerobot")
    change(folder, "policy_preprocessor.json", steps=saved(kind))
    (folder / "tokenizer").mkdir()
    (folder / "paligemma_tokenizer.model").rename(folder / "tokenizer" / "tokenizer.model")
    assert open_checkpoint(folder).prompts.tokenizer.path.parent.name == "tokenizer"


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
