# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
from safetensors.numpy import load_file, save_file

from flashrt_ros.models.tiny_pi0 import ACTIONS, STATE, write_tiny_pi0
from flashrt_ros.policy.normalise import Normaliser
from flashrt_ros.policy.statistics import read_lerobot, read_openpi
from flashrt_ros.runtime.errors import ErrorCode

X = np.linspace(-2, 2, len(STATE))


@pytest.fixture
def lerobot(tmp_path: Path) -> Path:
    return write_tiny_pi0(tmp_path, "pi0", "lerobot")


def normaliser(folder: Path, convention: str) -> Normaliser:
    return Normaliser.of(read_lerobot(folder), convention, STATE, ACTIONS)


def test_lerobots_formulas_are_its_own(lerobot: Path) -> None:
    action = X[None].astype(np.float32)
    ours = normaliser(lerobot, "mean_std")
    mean, std = float(np.float32(0.1)), 0.5
    np.testing.assert_allclose(ours.state(X), (X - mean) / (std + 1e-8), rtol=1e-6)
    np.testing.assert_allclose(ours.unnormalise_actions(action), action.astype(np.float64) * std + mean, rtol=1e-14)
    ours = normaliser(lerobot, "quantile")
    np.testing.assert_allclose(ours.state(X), 2 * (X + 1) / 2.5 - 1, rtol=1e-6)
    np.testing.assert_allclose(ours.unnormalise_actions(action), (action.astype(np.float64) + 1) * 1.25 - 1, rtol=1e-12)


def test_a_range_that_is_empty_is_lerobots_epsilon(lerobot: Path) -> None:
    for name in ("policy_preprocessor_step_1_normalizer", "policy_postprocessor_step_1_unnormalizer"):
        path = lerobot / f"{name}_processor.safetensors"
        tensors = load_file(path)
        tensors |= {"observation.state.min": np.zeros(6, np.float32), "observation.state.max": np.zeros(6, np.float32)}
        tensors |= {"action.min": np.zeros(6, np.float32), "action.max": np.ones(6, np.float32)}
        save_file(tensors, path)
    ours = normaliser(lerobot, "min_max")
    np.testing.assert_allclose(ours.state(np.full(6, 1e-8)), np.ones(6), rtol=1e-6)


def test_statistics_may_be_bfloat16(lerobot: Path) -> None:
    before = normaliser(lerobot, "quantile").state(X)
    for path in lerobot.glob("policy_*.safetensors"):
        tensors = {name: value.bfloat16() for name, value in safetensors.torch.load_file(path).items()}
        safetensors.torch.save_file(tensors, path)
    assert np.array_equal(normaliser(lerobot, "quantile").state(X), before)


def test_the_convention_is_in_the_fingerprint(lerobot: Path, tmp_path: Path) -> None:
    openpi = read_openpi(write_tiny_pi0(tmp_path / "openpi", "pi0"))
    same = read_lerobot(lerobot)
    prints = {Normaliser.of(part, "quantile", STATE, ACTIONS).fingerprint for part in (openpi, same)}
    assert len(prints) == 2


def test_lerobots_files_that_do_not_fit_are_refused(lerobot: Path, refuses) -> None:
    path = lerobot / "policy_preprocessor.json"
    content = json.loads(path.read_text())
    content["steps"][1]["config"]["eps"] = 1e-6
    path.write_text(json.dumps(content))
    with refuses(ErrorCode.BAD_CHECKPOINT, "policy_preprocessor.json", "eps: expected 1e-08, the only"):
        read_lerobot(lerobot)
    content["steps"][1] = {"registry_name": "normalizer_processor", "config": {}}
    path.write_text(json.dumps(content))
    with refuses(ErrorCode.BAD_CHECKPOINT, "has no state_file, and so no statistics"):
        read_lerobot(lerobot)
    path.write_text(json.dumps({"steps": content["steps"][:1]}))
    with refuses(ErrorCode.BAD_CHECKPOINT, "expected one normalizer_processor", "found 0"):
        read_lerobot(lerobot)
    path.unlink()
    with refuses(ErrorCode.BAD_CHECKPOINT, "policy_preprocessor.json: not found; LeRobot writes it beside the weights"):
        read_lerobot(lerobot)


def test_an_asset_has_to_be_chosen_among_several(tmp_path: Path, refuses) -> None:
    folder = write_tiny_pi0(tmp_path, "pi0")
    other = folder / "assets" / "lab" / "other"
    other.mkdir(parents=True)
    (other / "norm_stats.json").write_text((folder / "assets" / "arm" / "norm_stats.json").read_text())
    with refuses(ErrorCode.BAD_CHECKPOINT, "holds the statistics of arm, lab/other; choose one"):
        read_openpi(folder)
    assert read_openpi(folder, "lab/other").path.parent == other


def test_padding_behind_the_named_joints_is_left_out(tmp_path: Path, refuses) -> None:
    statistics = read_openpi(write_tiny_pi0(tmp_path, "pi0"))
    assert Normaliser.of(statistics, "mean_std", STATE[:4], ACTIONS[:2]).state_scaling.low.shape == (4,)
    with refuses(ErrorCode.BAD_CHECKPOINT, "norm_stats.state.mean has 6 values, the config names 7"):
        Normaliser.of(statistics, "mean_std", (*STATE, "tool"), ACTIONS)
