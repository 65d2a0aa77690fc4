# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The declared safety action, and holds that last too long."""

from __future__ import annotations

from typing import Any

from flashrt_ros.policy.contract_action import SafetyGroup


def test_where_all_joints_are_released_a_closing_gate_is_silence(timed: Any) -> None:
    robot = timed(safety=(SafetyGroup(("a", "b"), "release"),))
    robot.start()
    count = len(robot.record.commands)
    robot.rig.hold_epoch(2)
    robot.start(2)
    robot.tick(8)  # the next chunk is late
    assert robot.record.safety_stamps == []
    assert "releases every joint" in robot.controller.hold()
    assert (robot.gate.open, robot.token()) == (False, "hold")
    assert len(robot.record.commands) == count + 6


def test_the_shortest_timeout_counts(timed: Any) -> None:
    groups = (SafetyGroup(("a",), "hold", 5.0), SafetyGroup(("b",), "hold", 2.0))
    assert timed(safety=groups).controller.safety.timeout == 2.0
    assert timed(safety=groups[:1]).controller.safety.timeout == 5.0
    assert timed(safety=(SafetyGroup(("a", "b"), "hold"),)).controller.safety.timeout is None


def test_the_arm_is_held_while_a_chunk_is_late(robot: Any) -> None:
    robot.start()
    robot.tick(5)
    assert not robot.controller.holding
    robot.tick()
    assert robot.controller.holding
    robot.rig.plan(0.05, robot.rig.now)
    robot.tick()
    assert not robot.controller.holding


def test_the_arm_is_held_by_a_fault_until_the_policy_has_taken_note(robot: Any) -> None:
    robot.start()
    robot.controller.heartbeat_lost()
    assert robot.controller.holding
    robot.rig.hold_epoch(1)
    assert not robot.controller.holding


def test_a_stop_that_was_asked_for_is_no_trouble(robot: Any) -> None:
    robot.start()
    robot.controller.hold()
    assert not robot.controller.holding
    robot.rig.hold_epoch(2)
    robot.start(2)
    robot.controller.enable(False)
    assert not robot.controller.holding


def test_a_deactivation_that_nobody_asked_for_is_a_fault_until_the_next_activation(robot: Any) -> None:
    robot.start()
    robot.controller.heartbeat_lost()
    robot.controller.deactivate("a hold lasted longer than 2 s")
    assert robot.gate.state.reason == "inactive: a hold lasted longer than 2 s"
    assert robot.gate.fault
    robot.controller.activate()
    assert not robot.gate.fault
    assert not robot.controller.holding
