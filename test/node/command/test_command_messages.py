# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rclpy.serialization import deserialize_message, serialize_message
from trajectory_msgs.msg import JointTrajectory

from flashrt_ros.node.command_messages import command_message
from flashrt_ros.node.stamps import from_nanoseconds, to_nanoseconds
from flashrt_ros.policy.contract import load_contract
from flashrt_ros.policy.contract_action import COMMAND_TYPES, Action, Command

STAMP = 12_345_678_901
TARGETS = np.linspace(0.0, 0.5, 6)


def action(kind: str) -> Action:
    demo = load_contract(Path(__file__).resolve().parents[3] / "config" / "demo_contract.yaml").action
    return replace(demo, commands=(Command("joint_command", kind, demo.joints),))


def filled(kind: str) -> Any:
    (command,) = action(kind).commands
    message_type, fill = command_message(command, command.joints, action(kind).period)
    message = fill(STAMP, TARGETS[None])
    assert type(message) is message_type
    return message


def test_joint_state() -> None:
    message = filled("sensor_msgs/msg/JointState")
    assert message.name == list(action("").joints)
    assert list(message.position) == TARGETS.tolist()
    assert to_nanoseconds(message.header.stamp) == STAMP


def test_multi_array() -> None:
    assert list(filled("std_msgs/msg/Float64MultiArray").data) == TARGETS.tolist()


@pytest.mark.parametrize("kind", COMMAND_TYPES[:2])
def test_velocities(kind: str) -> None:
    command = Command("joint_command", kind, action(kind).joints, interface="velocity")
    message = command_message(command, command.joints, 1)[1](STAMP, TARGETS[None])
    assert list(message.velocity if hasattr(message, "velocity") else message.data) == TARGETS.tolist()
    assert not getattr(message, "position", None)


def test_trajectory() -> None:
    message = filled("trajectory_msgs/msg/JointTrajectory")
    assert message.joint_names == list(action("").joints)
    assert to_nanoseconds(message.header.stamp) == STAMP
    (point,) = message.points
    assert list(point.positions) == TARGETS.tolist()
    assert to_nanoseconds(point.time_from_start) == action("").period


def test_a_trajectory_holds_as_many_rows_as_it_gets() -> None:
    demo = action("trajectory_msgs/msg/JointTrajectory")
    _, fill = command_message(demo.commands[0], demo.joints, demo.period)
    for count in (1, 3, 2, 3, 1):
        rows = np.arange(count)[:, None] + TARGETS
        message = deserialize_message(serialize_message(fill(STAMP, rows)), JointTrajectory)
        assert [list(point.positions) for point in message.points] == rows.tolist()
        assert [to_nanoseconds(point.time_from_start) for point in message.points] == [
            (index + 1) * demo.period for index in range(count)
        ]


def test_a_command_may_name_some_of_the_joints() -> None:
    demo = action("sensor_msgs/msg/JointState")
    _, fill = command_message(demo.commands[0], demo.joints[1:3], demo.period)
    message = fill(STAMP, TARGETS[None, 1:3])
    assert (message.name, list(message.position)) == (list(demo.joints[1:3]), TARGETS[1:3].tolist())


@pytest.mark.parametrize("kind", COMMAND_TYPES)
def test_every_type_of_a_contract_can_be_sent(kind: str) -> None:
    assert filled(kind).__class__.__name__ == kind.rpartition("/")[2]


def test_stamps_convert_both_ways() -> None:
    assert to_nanoseconds(from_nanoseconds(STAMP)) == STAMP
