# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from types import SimpleNamespace as Message
from typing import Any

import numpy as np

from flashrt_ros.policy.contract_action import Command
from flashrt_ros.policy.replay_hands import Hands, recorded_hands

ALL = Command("joint_command", "sensor_msgs/msg/JointState", ("a", "b", "c"))


def recording(*commands: Any) -> Any:
    return Message(
        other={"Executed": [], "Gate": []},
        commands=[command if isinstance(command, tuple) else (ALL, command) for command in commands],
        contract=Message(action=Message(joints=("a", "b", "c"), interface="position")),
    )


def command(stamp: int, **positions: float) -> Any:
    header = Message(stamp=Message(sec=0, nanosec=stamp))
    return Message(header=header, name=list(positions), position=list(positions.values()))


def test_a_safety_action_that_leaves_joints_out_is_what_a_replay_sends() -> None:
    hands = recorded_hands(recording(command(7, c=3.0, a=1.0)))
    replayed = Hands(held=[0, 2])
    replayed.safety(7, np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    for side in (hands, replayed):
        assert side.commands[7].safety
        assert side.commands[7].positions.tolist() == [1.0, 3.0]


def test_commands_of_one_tick_are_one_whatever_their_topics() -> None:
    hands = recorded_hands(recording(command(7, c=3.0), command(8, c=4.0), command(7, b=2.0, a=1.0)))
    assert hands.commands[7].positions.tolist() == [1.0, 2.0, 3.0]
    assert hands.commands[8].positions.tolist() == [4.0]


def test_joints_that_two_commands_call_the_same_are_told_apart() -> None:
    left = Command("left", "sensor_msgs/msg/JointState", ("a", "b"), names=("waist", "elbow"))
    right = Command("right", "sensor_msgs/msg/JointState", ("c",), names=("waist",))
    sent = recording((right, command(7, waist=3.0)), (left, command(7, elbow=2.0, waist=1.0)))
    assert recorded_hands(sent).commands[7].positions.tolist() == [1.0, 2.0, 3.0]


def test_velocities_are_what_a_replay_sends() -> None:
    header = Message(stamp=Message(sec=0, nanosec=7))
    sent = recording(Message(header=header, name=["b", "a", "c"], position=[], velocity=[2.0, 1.0, 3.0]))
    sent.contract.action.interface = "velocity"
    assert recorded_hands(sent).commands[7].positions.tolist() == [1.0, 2.0, 3.0]


def test_of_rows_that_are_handed_over_the_first_is_the_command() -> None:
    hands = Hands()
    hands.command(7, np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert hands.commands[7].positions.tolist() == [1.0, 2.0]
    assert not hands.commands[7].safety
