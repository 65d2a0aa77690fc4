# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Measured joints that fit no start, are stale, or overtaken."""

from __future__ import annotations

from typing import Any

import pytest

from flashrt_ros.policy.contract_action import Limits

PERIOD = 100_000_000


def test_a_first_action_beyond_the_tolerance_keeps_the_gate_closed(robot: Any) -> None:
    robot.rig.run_epoch(1)
    robot.tick()
    robot.rig.plan(0.2)
    robot.tick()
    assert robot.record.commands == []
    assert robot.token() == "start_tolerance"
    assert all(part in robot.record.gates[-1].reason for part in ("'a'", "0.2000", "0.0000", "0.15", "convert"))
    assert robot.gate.fault
    robot.rig.plan(0.0, robot.rig.now)
    robot.tick(2)
    assert robot.record.commands == []  # this epoch is over


def test_the_joint_that_is_furthest_beyond_its_own_tolerance_is_named(timed: Any) -> None:
    robot = timed(start_tolerance=(0.3, 0.01))
    robot.rig.run_epoch(1)
    robot.tick()
    robot.rig.plan(0.2, data=[0.2, 0.02] * 6)
    robot.tick()
    assert robot.token() == "start_tolerance"
    assert "'b' would start at 0.0200, it is measured at 0.0000, allowed is 0.01" in robot.gate.reason


def test_an_arm_beyond_its_limits_does_not_start_and_is_held_where_it_is(robot: Any) -> None:
    robot.rig.run_epoch(1)
    robot.tick(a=1.2)
    robot.rig.plan(1.2)
    robot.tick(a=1.2)
    assert not robot.gate.open
    assert robot.token() == "start_tolerance"
    assert "'a' has its limit at 1.0000, it is measured at 1.2000" in robot.gate.reason
    assert "move it back, or see that it is told in rad or m" in robot.gate.reason
    assert robot.controller.hold() == ""
    assert robot.record.targets == [1.2]


def test_an_arm_just_beyond_its_limits_starts_at_the_limit(robot: Any) -> None:
    robot.rig.run_epoch(1)
    robot.tick(a=1.12)
    robot.rig.plan(0.98)
    robot.tick(a=1.12)
    robot.tick(a=1.0)
    assert robot.record.targets == [1.0, 0.99]


def test_a_first_action_within_the_tolerance_is_reached_in_steps(robot: Any) -> None:
    robot.rig.run_epoch(1)
    robot.tick()
    robot.rig.plan(0.14)
    robot.tick(2)
    assert robot.record.targets == [0.1, 0.15]
    assert robot.controller.saturation.counts == {"a": 1}


def test_stale_joints_keep_the_gate_closed_and_a_new_observation_is_asked_for(robot: Any) -> None:
    robot.rig.measure()
    robot.rig.run_epoch(1)
    robot.tick(4, a=None)
    robot.rig.plan(0.0)
    del robot.record.log[:]
    robot.tick(a=None)
    assert robot.record.commands == []
    assert robot.token() == "joints"
    assert robot.record.requests == [robot.rig.now]
    robot.rig.plan(0.0)
    robot.tick()
    assert robot.record.targets == [0.0]


def test_joints_without_a_stamp_are_not_taken_and_it_is_said_what_to_do(robot: Any) -> None:
    robot.rig.now = 10 * PERIOD
    robot.rig.run_epoch(1)
    robot.rig.measure(stamp=0)
    robot.tick(a=None)
    robot.rig.plan(0.0)
    robot.tick(a=None)
    assert robot.record.commands == []
    assert "sets no stamp; mend that, or take them by stamp: receive" in robot.gate.reason


def test_joints_that_become_stale_close_the_gate(robot: Any) -> None:
    robot.start()
    robot.tick(3, a=None)
    assert robot.gate.open
    robot.tick(a=None)
    assert (robot.gate.open, robot.token(), robot.gate.fault) == (False, "joints", True)


@pytest.mark.parametrize("absurd", [1.2, 57.3, -1e6])
def test_joints_far_outside_their_limits_close_an_open_gate(robot: Any, absurd: float) -> None:
    robot.start()
    robot.tick(a=absurd)
    assert (robot.gate.open, robot.token(), robot.gate.fault) == (False, "joints", True)
    assert f"'a' is measured at {absurd:.4f}" in robot.gate.reason
    assert "outside its limits [-1, 1]" in robot.gate.reason
    assert robot.record.targets[-1] == robot.record.targets[-2]


@pytest.mark.parametrize("ticks", [0, 3])
def test_joints_that_jump_close_an_open_gate(timed: Any, ticks: int) -> None:
    robot = timed(limits=Limits(low=(-9.0, -9.0), high=(9.0, 9.0), step=(0.1, 0.1)))
    robot.start()
    robot.tick(ticks)
    where = robot.record.targets[-1]
    robot.tick(a=1.2)
    assert (robot.gate.open, robot.token(), robot.gate.fault) == (False, "joints", True)
    assert "'a' is measured at 1.2000, 0.100 s after 0.0000" in robot.gate.reason
    assert robot.record.targets[-1] == where


def test_where_the_arm_was_put_between_two_runs_is_no_jump(robot: Any) -> None:
    robot.start()
    robot.rig.hold_epoch(2)
    robot.rig.run_epoch(2)
    robot.tick(a=0.9)
    robot.rig.plan(0.9)
    robot.tick(2, a=0.9)
    assert robot.gate.open


def test_nan_in_the_measured_joints_is_never_used(robot: Any) -> None:
    robot.rig.run_epoch(1)
    robot.tick(a=None)
    robot.rig.measure(float("nan"))
    robot.rig.plan(0.0)
    robot.tick(a=None)
    assert robot.record.commands == []


def test_joints_that_were_overtaken_replace_no_newer_ones(robot: Any) -> None:
    robot.tick(10, a=0.3)
    robot.rig.measure(0.1, stamp=robot.rig.now - PERIOD)
    assert robot.controller.hold() == ""
    assert robot.record.targets == [0.3]
    assert robot.controller.dropped == {"older joints": 1}
    robot.rig.measure(0.1, stamp=robot.rig.now - 4 * PERIOD)
    assert "old" in robot.controller.hold()
