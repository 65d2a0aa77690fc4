# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from array import array
from types import SimpleNamespace as Message
from typing import Any

import pytest

from flashrt_ros.policy.observation_messages import entries_of, fields_of, joints_of
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

POSE = Message(position=Message(x=1.0, y=2.0, z=3.0), orientation=Message(x=0.0, y=0.0, z=0.6, w=0.8))
WRENCH = Message(force=Message(x=4.0, y=5.0, z=6.0), torque=Message(x=7.0, y=8.0, z=9.0))


def joints(name: list[str], position: list[float], **others: list[float]) -> Any:
    return Message(name=name, position=array("d", position), **{"velocity": [], "effort": []} | others)


def test_joints_are_selected_by_name() -> None:
    state = joints(["b", "spare", "a"], [2.0, 9.0, 1.0])
    assert joints_of(state, ["a", "b"]).tolist() == [1.0, 2.0]


def test_joints_are_selected_by_field() -> None:
    state = joints(["b", "spare", "a"], [], velocity=[2.0, 9.0, 1.0], effort=[4.0, 9.0, 3.0])
    assert joints_of(state, ["a", "b"], "velocity").tolist() == [1.0, 2.0]
    assert joints_of(state, ["a", "b"], "effort").tolist() == [3.0, 4.0]


@pytest.mark.parametrize(
    ("names", "positions", "named"),
    [
        (["a"], [1.0], "joint 'b' is missing; the message names a"),
        (["a", "b"], [1.0], "1 positions for 2 joint names"),
        (["a", "b"], [], "0 positions for 2 joint names"),
        (["a", "b", "a"], [1.0, 2.0, 3.0], "joint 'a' is named twice"),
        (["a", "b"], [1.0, float("nan")], "joint 'b' is nan"),
        (["a", "b"], [float("inf"), 1.0], "joint 'a' is inf"),
    ],
)
def test_joints_that_are_not_whole_are_refused(names: list[str], positions: list[float], named: str) -> None:
    with pytest.raises(FlashrtError, match=named):
        joints_of(joints(names, positions), ["a", "b"])


def test_an_empty_field_is_named() -> None:
    with pytest.raises(FlashrtError, match="0 velocities for 2 joint names"):
        joints_of(joints(["a", "b"], [1.0, 2.0]), ["a", "b"], "velocity")


def test_the_entries_of_an_array_have_the_names_that_the_contract_gives_them() -> None:
    assert entries_of(Message(data=[1.0, 2.0, 3.0]), ["x", "y", "z"], ["z", "x"]).tolist() == [3.0, 1.0]


@pytest.mark.parametrize(
    ("data", "named"), [([1.0], "1 entries, the contract names 2: x, y"), ([1.0, float("nan")], "entry 'y' is nan")]
)
def test_an_array_that_is_not_whole_is_refused(data: list[float], named: str) -> None:
    with pytest.raises(FlashrtError, match=named) as refused:
        entries_of(Message(data=data), ["x", "y"], ["y"])
    assert refused.value.code is ErrorCode.BAD_OBSERVATION


@pytest.mark.parametrize("message", [POSE, Message(header=None, pose=POSE)])
def test_fields_of_a_pose(message: Any) -> None:
    assert fields_of(message, ["position.z", "orientation.w", "position.x"]).tolist() == [3.0, 0.8, 1.0]


@pytest.mark.parametrize("message", [WRENCH, Message(header=None, wrench=WRENCH)])
def test_fields_of_a_wrench(message: Any) -> None:
    assert fields_of(message, ["torque.y", "force.x"]).tolist() == [8.0, 4.0]


def test_a_field_that_is_not_finite_is_refused() -> None:
    broken = Message(force=Message(x=float("nan")), torque=None)
    with pytest.raises(FlashrtError, match=r"field 'force\.x' is nan"):
        fields_of(broken, ["force.x"])
