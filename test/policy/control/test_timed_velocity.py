# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Joints that are commanded by velocity: each command moves them until the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flashrt_ros.policy.contract_action import Command, Limits, SafetyGroup

PERIOD = 100_000_000
SPEEDS = (Command("joint_command", "sensor_msgs/msg/JointState", ("a", "b"), interface="velocity"),)
ZERO = (SafetyGroup(("a", "b"), "zero"),)
LIMITS = Limits(low=(-1.0, -1.0), high=(1.0, 1.0), step=(0.1, 0.1))  # 1 rad/s
GENTLE = Limits(low=(-1.0, -1.0), high=(1.0, 1.0), step=(0.1, 0.1), acceleration=(0.0015, 0.0015))  # 0.15 rad/s2


@pytest.fixture
def moved(timed: Any) -> Callable[..., Any]:
    return lambda **action: timed(**{"commands": SPEEDS, "limits": LIMITS, "safety": ZERO} | action)


def test_rows_are_speeds_wherever_the_arm_is(moved: Any) -> None:
    robot = moved()
    robot.rig.run_epoch(1)
    robot.tick(a=0.5)
    robot.rig.plan(0.1)
    robot.tick(3, a=0.5)
    assert robot.record.targets == [0.1, 0.11, 0.12]


def test_the_first_speed_is_compared_with_standing_still(moved: Any) -> None:
    robot = moved()
    robot.rig.run_epoch(1)
    robot.tick(a=0.5)
    robot.rig.plan(0.2)
    robot.tick(a=0.5)
    assert robot.token() == "start_tolerance"
    assert "'a' would start with 0.2000, it stands still at 0.0000, allowed is 0.15" in robot.gate.reason
    assert robot.record.commands == []


@pytest.mark.parametrize("action", ["zero", "hold"])
def test_a_closing_gate_commands_zeros_once(moved: Any, action: str) -> None:
    robot = moved(safety=(SafetyGroup(("a", "b"), action),))
    robot.start()
    robot.tick(2)
    robot.controller.enable(False)
    robot.tick(3)
    assert robot.record.targets == [0.0, 0.01, 0.02, 0.0]
    assert len(robot.record.safety_stamps) == 1


def test_zeros_are_reached_by_the_acceleration(moved: Any) -> None:
    robot = moved(limits=GENTLE)
    robot.start()
    robot.tick(4)
    robot.rig.hold_epoch(2)
    robot.tick(8)
    assert robot.record.targets == [0.0, 0.01, 0.02, 0.03, 0.04, 0.025, 0.01, 0.0]


def test_a_late_chunk_is_waited_for_at_rest_and_goes_on_by_the_acceleration(moved: Any) -> None:
    robot = moved(limits=GENTLE)
    robot.start()
    robot.tick(11)
    assert robot.record.targets[5:] == [0.05, 0.035, 0.02, 0.005, 0.0]
    assert robot.controller.late_chunks == 1
    robot.rig.plan(0.05, robot.rig.now)
    robot.tick(3)
    assert robot.record.targets[-3:] == [0.015, 0.03, 0.045]


def test_at_its_position_limit_a_joint_is_commanded_no_further(moved: Any) -> None:
    robot = moved()
    robot.rig.run_epoch(1)
    robot.tick(a=0.9)
    robot.rig.plan(0.1)
    robot.tick(a=0.9)
    robot.tick(a=0.995)
    robot.tick(a=1.01)
    assert robot.record.targets == [0.1, 0.05, 0.0]
    assert robot.controller.saturation.counts == {"a": 2}


def test_joints_far_outside_their_limits_close_the_gate(moved: Any) -> None:
    robot = moved()
    robot.start()
    robot.tick(a=0.9)
    robot.tick(a=1.9)
    assert robot.gate.open
    robot.tick(a=2.1)
    assert robot.token() == "joints"
    assert robot.record.targets[-1] == 0.0


def test_hold_of_a_closed_gate_commands_zeros_though_nothing_is_measured(moved: Any) -> None:
    robot = moved()
    robot.tick(a=None)
    assert robot.controller.hold() == ""
    assert robot.record.targets == [0.0]


@pytest.mark.parametrize("limits", [LIMITS, GENTLE])
@pytest.mark.parametrize(
    "stop",
    [
        lambda robot: setattr(robot.rig, "now", robot.rig.now + 50 * PERIOD),
        lambda robot: robot.controller.stopped(1.0),
        lambda robot: (setattr(robot, "stopped_for", 1.0), robot.rig.hold_epoch(2)),
    ],
    ids=["of ROS time", "of this process", "seen by a hold"],
)
@pytest.mark.parametrize("closes", [False, True])
def test_after_a_stop_zeros_are_commanded_and_no_old_speed(moved: Any, limits: Limits, stop: Any, closes: bool) -> None:
    robot = moved(limits=limits)
    robot.start()
    robot.tick(4)
    if closes:
        robot.rig.hold_epoch(2)
    count = len(robot.record.commands)
    stop(robot)
    robot.tick(3, a=None)
    assert not robot.gate.open
    assert set(robot.record.targets[count:]) <= {0.0}
    assert robot.record.targets[-1] == 0.0
