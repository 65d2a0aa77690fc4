# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace as Message
from typing import Any

from flashrt_ros.policy.contract_observation import Observation, StateSource
from flashrt_ros.policy.joint_merger import JointMerger, Measured

SECOND = 1_000_000_000
LEFT = StateSource(
    key="state[0]",
    topic="left",
    type="sensor_msgs/msg/JointState",
    qos="reliable",
    joints=("a", "b"),
    max_age=0.3,
    names=("a", "b"),
)
RIGHT = replace(LEFT, key="state[1]", topic="right", joints=("c",), names=("c",))
HAND = replace(RIGHT, type="std_msgs/msg/Float64MultiArray", stamp="receive")


def joints(**positions: float) -> Any:
    return Message(name=list(positions), position=list(positions.values()))


def merger(*sources: StateSource) -> JointMerger:
    return JointMerger(Observation((), sources), ["c", "a"])


def test_one_source_is_passed_on_as_it_is() -> None:
    made = JointMerger(Observation((), (LEFT, RIGHT)), ["b"])
    assert made.sources == (LEFT,)
    assert made.merge(0, joints(x=9.0, a=1.0), 7) == Measured(["x", "a"], [9.0, 1.0], 7)


def test_two_sources_make_one_when_both_have_come_with_the_stamp_of_the_older() -> None:
    made = merger(LEFT, RIGHT)
    assert made.merge(0, joints(b=2.0, a=1.0), 5 * SECOND) is None
    assert made.merge(1, joints(c=3.0), 5 * SECOND + 9) == Measured(["a", "c"], [1.0, 3.0], 5 * SECOND)
    assert made.merge(0, joints(b=2.0, a=1.5), 5 * SECOND + 20) == Measured(["a", "c"], [1.5, 3.0], 5 * SECOND + 9)


def test_joints_of_two_arms_with_the_same_names_are_told_apart_and_others_are_left_out() -> None:
    made = merger(replace(LEFT, joints=("waist", "finger")), replace(RIGHT, joints=("waist",)))
    made.merge(1, joints(waist=3.0, b=9.0), 7)
    assert made.merge(0, joints(b=9.0, finger=2.0, waist=1.0), 7) == Measured(["a", "c"], [1.0, 3.0], 7)


def test_of_one_source_a_joint_that_has_one_of_our_names_is_not_taken_for_ours() -> None:
    made = JointMerger(Observation((), (replace(LEFT, joints=("waist", "finger")),)), ["a", "b"])
    assert made.merge(0, joints(b=9.0, waist=1.0, finger=2.0), 7) == Measured(["a", "b"], [1.0, 2.0], 7)


def test_renamed_positions_of_another_number_than_names_are_passed_on_to_be_refused() -> None:
    made = JointMerger(Observation((), (replace(LEFT, joints=("waist", "finger")),)), ["a", "b"])
    found = made.merge(0, Message(name=["waist", "finger"], position=[1.0]), 7)
    assert found == Measured(["a", "b"], [1.0], 7)


def test_an_array_has_the_names_of_the_contract() -> None:
    made = merger(LEFT, HAND)
    made.merge(1, Message(data=[3.0]), 7)
    found = made.merge(0, joints(a=1.0, b=2.0), 7)
    assert found == Measured(["a", "c"], [1.0, 3.0], 7)


def test_a_message_that_lacks_a_joint_is_passed_on_to_be_refused() -> None:
    made = merger(LEFT, RIGHT)
    made.merge(1, joints(c=3.0), 7)
    assert made.merge(0, joints(b=2.0), 7) == Measured(["b"], [2.0], 7)


def test_a_source_that_may_be_less_old_counts_as_older() -> None:
    made = merger(LEFT, replace(RIGHT, max_age=0.1))
    assert made.max_age == 3 * SECOND // 10
    made.merge(0, joints(a=1.0), 5 * SECOND)
    found = made.merge(1, joints(c=3.0), 5 * SECOND)
    assert found is not None
    assert found.stamp == 5 * SECOND - 2 * SECOND // 10


def test_after_the_clock_was_set_back_both_must_come_again() -> None:
    made = merger(LEFT, RIGHT)
    made.merge(0, joints(a=1.0), 50 * SECOND)
    made.merge(1, joints(c=3.0), 50 * SECOND)
    assert made.merge(0, joints(a=1.0), 40 * SECOND) is None
    assert made.merge(1, joints(c=4.0), 40 * SECOND) == Measured(["a", "c"], [1.0, 4.0], 40 * SECOND)
