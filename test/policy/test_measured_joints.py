# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from flashrt_ros.policy.measured_joints import MeasuredJoints


@pytest.fixture
def joints() -> MeasuredJoints:
    return MeasuredJoints(("a", "b"), max_age=100)


def test_joints_are_selected_by_name(joints: MeasuredJoints) -> None:
    for names, positions in ((["a", "b"], [1.0, 2.0]), (["x", "b", "a"], [9.0, 2.0, 1.0]), (["b", "a"], [2.0, 1.0])):
        assert joints.update(names, positions, 10)
        assert joints.positions is not None
        assert joints.positions.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("names", "positions", "says"),
    [
        (["a"], [1.0], "'b' is missing; the message names a"),
        (["a", "b"], [1.0], "1 positions for 2 names"),
        (["a", "b"], [1.0, float("nan")], "'b' is NaN"),
        (["a", "b", "b"], [1.0, 2.0, 3.0], "twice"),
    ],
)
def test_an_unfit_message_is_refused_and_explains_the_staleness(
    joints: MeasuredJoints, names: list[str], positions: list[float], says: str
) -> None:
    joints.update(["a", "b"], [1.0, 2.0], 10)
    assert not joints.update(names, positions, 20)
    assert joints.positions is not None
    assert joints.positions.tolist() == [1.0, 2.0]
    assert joints.refused == 1
    assert joints.trouble(110) == ""
    assert says in joints.trouble(111)


def test_only_the_newest_refusal_explains(joints: MeasuredJoints) -> None:
    joints.update(["a"], [1.0], 10)
    assert "'b' is missing" in joints.trouble(10)
    joints.update(["a", "b"], [1.0, 2.0], 20)
    assert "missing" not in joints.trouble(1000)


def test_nan_in_a_joint_that_is_not_wanted_does_not_matter(joints: MeasuredJoints) -> None:
    assert joints.update(["x", "a", "b"], [float("nan"), 1.0, 2.0], 10)


def test_age_is_bounded_on_both_sides(joints: MeasuredJoints) -> None:
    assert "nothing was received" in joints.trouble(0)
    joints.update(["a", "b"], [1.0, 2.0], 1000)
    assert joints.trouble(1100) == ""
    assert "old" in joints.trouble(1101)
    assert "future" in joints.trouble(899)


def test_clear_forgets(joints: MeasuredJoints) -> None:
    joints.update(["a", "b"], [1.0, 2.0], 10)
    joints.clear()
    assert joints.trouble(10) != ""
