# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""StarVLA's statistics and formulas; `still` never moved in its data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashrt_ros.models.starvla_config import Scales
from flashrt_ros.models.tiny import JOINTS, write_tiny_checkpoint
from flashrt_ros.policy.loading import load_policy
from flashrt_ros.policy.normalise import Normaliser
from flashrt_ros.policy.opening import open_folder
from flashrt_ros.policy.statistics import read_hybrid
from flashrt_ros.runtime.errors import ErrorCode

NAMES = ("pan", "still", "gripper")
PART = {
    "mean": [1.0, 3.0, 0.5],
    "std": [0.5, 0.0, 0.5],
    "min": [-1.0, 3.0, 0.0],
    "max": [3.0, 3.0, 1.0],
    "q01": [0.0, 3.0, 0.0],
    "q99": [2.0, 3.0, 1.0],
}
X = np.array([1.5, 3.5, 0.75])


def write(folder: Path, **datasets: Any) -> Path:
    (folder / "dataset_statistics.json").write_text(json.dumps(datasets or {"arm": {"state": PART, "action": PART}}))
    return folder


def normaliser(folder: Path, convention: str, dataset: str = "", **scales: Any) -> Normaliser:
    chosen = Scales(**{"state": convention, **scales})
    return Normaliser.of(read_hybrid(folder, dataset), convention, NAMES, NAMES, chosen)


@pytest.mark.parametrize(
    ("convention", "scaled", "back"),
    [
        ("mean_std", [1.0, 3.5, 0.5], [1.75, 3.0, 0.875]),
        ("min_max", [0.25, 0.0, 0.5], [4.0, 3.0, 0.875]),
        ("quantile", [0.5, 2.2, 0.5], [2.5, 3.0, 0.875]),  # an empty range leaves 3.5, which 2.2 bounds
    ],
)
def test_formulas_are_starvlas(tmp_path: Path, convention: str, scaled: list[float], back: list[float]) -> None:
    ours = normaliser(write(tmp_path), convention)
    np.testing.assert_allclose(ours.state(X), scaled, rtol=1e-7)
    np.testing.assert_allclose(ours.unnormalise_actions(np.array([[1.5, 7.0, 0.75]], np.float32)), [back], rtol=1e-12)


def test_some_numbers_are_left_alone_or_are_either_0_or_1(tmp_path: Path) -> None:
    masked = {"action": {**PART, "mask": [True, True, False]}, "state": PART}
    write(tmp_path, arm=masked)
    action = np.array([[0.0, 0.2, 0.6], [0.0, 0.2, 0.4]], np.float32)
    of_mask = normaliser(tmp_path, "min_max")
    np.testing.assert_allclose(of_mask.unnormalise_actions(action), [[1.0, 3.0, 1.0], [1.0, 3.0, 0.0]])
    assert of_mask.state(X)[2] == 0.5  # the mask is the actions'
    named = normaliser(tmp_path, "min_max", raw=("still", "gripper"), binary=("pan",))
    np.testing.assert_allclose(named.unnormalise_actions(action), [[0, 0.2, 0.6], [0, 0.2, 0.4]], rtol=1e-6)
    assert named.state(X).tolist() == [1.0, 3.5, 0.75]
    apart = normaliser(tmp_path, "min_max", state="none")
    assert apart.state(X).tolist() == X.tolist()
    assert len({some.fingerprint for some in (of_mask, named, apart)}) == 3


def test_a_policy_is_given_and_gives_them(tmp_path: Path) -> None:
    own = {"action_mode": "absolute", "normalisation": "min_max", "state_normalisation": "none", "raw": ["elbow"]}
    write_tiny_checkpoint(tmp_path, layout="starvla", **own)
    (tmp_path / "norm_stats.json").unlink()
    part = {"min": [0.0] * 6, "max": [2.0] * 6, "mask": [True] * 5 + [False]}
    write(tmp_path, arm={"action": part, "state": {}})
    processor = load_policy(tmp_path, device="cpu").processor
    actions = processor.actions(np.full((1, 6), 0.75, np.float32), np.zeros(6))
    assert actions.tolist() == [[1.75, 1.75, 0.75, 1.75, 1.75, 1.0]]
    assert JOINTS.index("elbow") == 2


def test_a_delta_is_neither_0_nor_1(tmp_path: Path, refuses) -> None:
    write_tiny_checkpoint(tmp_path, layout="starvla", binary=["gripper"])
    with refuses(ErrorCode.BAD_CHECKPOINT, "['gripper'] are 0 or 1: list them in absolute_actions"):
        load_policy(tmp_path, device="cpu")


ONE = {"action": PART, "state": PART}


@pytest.mark.parametrize(
    ("datasets", "dataset", "named"),
    [
        ({"arm": ONE, "hand": ONE}, "", "holds the statistics of arm, hand; choose one: dataset"),
        ({"arm": ONE}, "leg", "no object under the key 'leg'; found arm"),
        ({"arm": {"action": [], "state": PART}}, "", "no object under the key 'action'; found list"),
        ({"arm": {"action": PART, "state": {}}}, "", "no list under the key 'state.min'; found nothing"),
        ({"arm": {**ONE, "action": {**PART, "mask": [1, 1, 0]}}}, "", "action.mask is [1, 1, 0]; expected 3 times"),
        ({"arm": {**ONE, "action": {**PART, "mask": [True]}}}, "", "action.mask is [True]; expected 3 times"),
    ],
)
def test_statistics_that_do_not_fit_are_refused(
    tmp_path: Path, datasets: dict[str, Any], dataset: str, named: str, refuses
) -> None:
    write(tmp_path, **datasets)
    with refuses(ErrorCode.BAD_CHECKPOINT, "dataset_statistics.json", named):
        normaliser(tmp_path, "min_max", dataset)


def test_one_of_several_datasets_is_chosen(tmp_path: Path) -> None:
    other = {key: [2 * value for value in values] for key, values in PART.items()}
    write(tmp_path, arm=ONE, hand={"action": other, "state": other})
    assert normaliser(tmp_path, "min_max", "hand").action_scaling.high.tolist() == other["max"]


def test_a_folder_has_one_file_of_statistics(tmp_path: Path, refuses) -> None:
    folder = write(write_tiny_checkpoint(tmp_path, layout="starvla"))
    with refuses(ErrorCode.BAD_CHECKPOINT, "holds both norm_stats.json and dataset_statistics.json"):
        open_folder(folder).normaliser()
