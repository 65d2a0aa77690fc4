# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashrt_ros.policy.normalise import Normaliser
from flashrt_ros.policy.statistics import none_needed, read_openpi
from flashrt_ros.runtime.errors import ErrorCode

JOINTS = ("lift", "grip")
STATISTICS: dict[str, Any] = {
    "state": {"mean": [1.0, -2], "std": [0.5, 0.0], "q01": [0.0, -3.0], "q99": [2.0, -3.0]},
    "actions": {"mean": [0.1, 0.2], "std": [2.0, 4.0], "q01": [-1.0, 0.0], "q99": [1.0, 8.0]},
}


def write(folder: Path, content: Any) -> Path:
    (folder / "norm_stats.json").write_text(json.dumps(content))
    return folder


def load(folder: Path, convention: str = "mean_std") -> Normaliser:
    statistics = none_needed(folder) if convention == "none" else read_openpi(folder)
    return Normaliser.of(statistics, convention, JOINTS, JOINTS)


def test_conventions_are_openpis(tmp_path: Path) -> None:
    write(tmp_path, {"norm_stats": STATISTICS})
    x, a = np.array([2.0, -2.5]), np.array([[0.5, -0.5]], np.float32)
    mean_std, quantile = load(tmp_path, "mean_std"), load(tmp_path, "quantile")
    np.testing.assert_allclose(mean_std.state(x), [1 / (0.5 + 1e-6), -0.5 / 1e-6], rtol=1e-7)
    np.testing.assert_allclose(quantile.state(x), [2 / (2 + 1e-6) * 2 - 1, 0.5 / 1e-6 * 2 - 1], rtol=1e-7)
    np.testing.assert_allclose(
        mean_std.unnormalise_actions(a), [[0.5 * (2 + 1e-6) + 0.1, -0.5 * (4 + 1e-6) + 0.2]], rtol=1e-14
    )
    np.testing.assert_allclose(
        quantile.unnormalise_actions(a), [[1.5 / 2 * (2 + 1e-6) - 1, 0.5 / 2 * (8 + 1e-6)]], rtol=1e-14
    )
    assert mean_std.state(x).dtype == np.float32
    assert quantile.unnormalise_actions(a).dtype == np.float64


def test_fingerprint_covers_convention_and_numbers(tmp_path: Path) -> None:
    def fingerprints(statistics: dict[str, Any]) -> set[str]:
        write(tmp_path, {"norm_stats": statistics})
        return {load(tmp_path, convention).fingerprint for convention in ("mean_std", "quantile", "none")}

    # The same numbers under both conventions, and swapped between state and actions.
    same = {"mean": [0.0, 0.0], "std": [1.0, 1.0], "q01": [0.0, 0.0], "q99": [1.0, 1.0]}
    other = {**same, "std": [1.0, 2.0], "q99": [1.0, 2.0]}
    found = [fingerprints({"state": same, "actions": same})]
    found += [fingerprints({"state": same, "actions": other}), fingerprints({"state": other, "actions": same})]
    assert len(set.union(*found)) == 7  # 3 times 2 conventions, and "none", which reads no numbers
    assert fingerprints({"state": same, "actions": same}) == found[0]


def test_none_is_identity_only_by_name(tmp_path: Path, refuses) -> None:
    x = np.array([2.0, -2.5])
    assert np.array_equal(load(tmp_path, "none").state(x), x)
    assert np.array_equal(load(tmp_path, "none").unnormalise_actions(np.float32([[3, 4]])), [[3, 4]])
    write(tmp_path, {"norm_stats": STATISTICS})
    for convention in ("identity", "", "None"):
        with refuses(ErrorCode.BAD_CHECKPOINT, repr(convention), "mean_std, quantile, min_max, none"):
            load(tmp_path, convention)


def changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    statistics = json.loads(json.dumps(STATISTICS))
    change(statistics)
    return {"norm_stats": statistics}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ([], "'norm_stats'; found list"),
        ({"stats": STATISTICS}, "'norm_stats'; found stats"),
        (changed(lambda s: s.pop("state")), "'norm_stats.state'; found actions"),
        (changed(lambda s: s["actions"].pop("std")), "'norm_stats.actions.std'; found mean, q01, q99"),
        (changed(lambda s: s["state"].update(mean=[1.0])), "norm_stats.state.mean has 1 values, the config names 2"),
        (changed(lambda s: s["actions"].update(std=[1.0] * 3)), "norm_stats.actions.std has 3 values"),
        (changed(lambda s: s["state"].update(mean=[1.0, float("nan")])), "norm_stats.state.mean[1] is nan"),
        (changed(lambda s: s["actions"].update(std=[1.0, float("inf")])), "norm_stats.actions.std[1] is inf"),
        (changed(lambda s: s["actions"].update(std=[1.0, "2"])), "norm_stats.actions.std[1] is '2'"),
        (changed(lambda s: s["actions"].update(std=[1.0, True])), "norm_stats.actions.std[1] is True"),
        (changed(lambda s: s["actions"].update(std=[1.0, -1.0])), "norm_stats.actions[1]: std -1.0 is negative"),
    ],
)
def test_statistics_that_do_not_fit_are_refused(tmp_path: Path, content: Any, named: str, refuses) -> None:
    write(tmp_path, content)
    with refuses(ErrorCode.BAD_CHECKPOINT, "norm_stats.json", named):
        load(tmp_path)


def test_absent_or_unreadable_statistics_are_refused(tmp_path: Path, refuses) -> None:
    with refuses(ErrorCode.BAD_CHECKPOINT, "norm_stats.json", "No such file"):
        load(tmp_path)
    (tmp_path / "norm_stats.json").write_text("{")
    with refuses(ErrorCode.BAD_CHECKPOINT, "not JSON"):
        load(tmp_path)


def test_crossed_quantiles_are_refused(tmp_path: Path, refuses) -> None:
    write(tmp_path, changed(lambda s: s["state"].update(q99=[2.0, -3.1])))
    with refuses(ErrorCode.BAD_CHECKPOINT, "norm_stats.state[1]: q99 -3.1 is below q01"):
        load(tmp_path, "quantile")
    load(tmp_path, "mean_std")  # what a convention does not use is not judged
