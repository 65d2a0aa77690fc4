# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Holds of joints whose acceleration is limited: they come to rest over several ticks."""

from __future__ import annotations

from typing import Any

import pytest

from flashrt_ros.policy.contract_action import TRAJECTORY, Command, Limits, SafetyGroup

PERIOD = 100_000_000
LIMITS = Limits(low=(-1.0, -1.0), high=(1.0, 1.0), step=(0.1, 0.1), acceleration=(0.004, 0.004))
BRAKED = [0.026, 0.028, 0.028]
"""Of joint a, commanded to 0.02 at 0.01 a tick."""


@pytest.fixture
def braking(timed: Any) -> Any:
    return timed(limits=LIMITS)


def run_to(robot: Any, a: float) -> None:
    robot.start()
    while robot.record.targets[-1] < a:
        robot.tick()
    del robot.record.log[:]


@pytest.mark.parametrize(
    "close",
    [
        lambda robot: robot.rig.hold_epoch(2),
        lambda robot: robot.controller.enable(False),
        lambda robot: robot.controller.hold(),
        lambda robot: robot.controller.heartbeat_lost(),
        lambda robot: robot.controller.rivals("'/teleop'"),
        lambda robot: robot.rig.plan(float("nan"), robot.rig.now),
    ],
    ids=["held", "e-stop", "hold", "heartbeat", "rival", "bad chunk"],
)
def test_a_closing_gate_slows_down_from_the_next_tick_on_and_is_then_silent(braking: Any, close: Any) -> None:
    run_to(braking, 0.02)
    closed_at = braking.rig.now
    braking.rig.now += 1000
    close(braking)
    assert not braking.gate.open
    assert braking.record.commands == []
    braking.rig.now = closed_at
    braking.tick(8)
    assert braking.record.targets == BRAKED
    assert braking.record.safety_stamps == [closed_at + n * PERIOD for n in (1, 2, 3)]
    assert braking.controller.holds == 1


def test_a_tick_that_finds_trouble_and_runs_no_row_slows_down(braking: Any) -> None:
    run_to(braking, 0.02)
    closed_at = braking.rig.now + PERIOD
    braking.tick(8, a=1e6)
    assert braking.token() == "joints"
    assert braking.record.targets == BRAKED
    assert braking.record.safety_stamps[0] == closed_at


def test_a_tick_that_ran_the_last_row_does_not_slow_down_too(braking: Any) -> None:
    braking.start(step_limit=3)
    braking.tick(8)
    assert braking.record.targets == [0.0, 0.01, 0.02, *BRAKED]
    stamps = [stamp for stamp, _ in braking.record.commands]
    assert stamps == [stamps[0] + n * PERIOD for n in range(6)]


def test_a_late_chunk_is_waited_for_at_rest_and_goes_on_without_a_jump(braking: Any) -> None:
    braking.start()
    braking.tick(9)
    rest = [0.056, 0.058, 0.058]
    assert braking.record.targets == [0.0, 0.01, 0.02, 0.03, 0.04, 0.05, *rest]
    assert (braking.controller.late_chunks, braking.controller.holds) == (1, 1)
    braking.rig.plan(0.05, braking.rig.now)
    braking.tick(2, a=0.058)
    assert braking.record.targets[-2:] == [0.05, 0.06]


def test_a_chunk_that_comes_while_the_arm_slows_down_takes_over(braking: Any) -> None:
    braking.start()
    braking.tick(6)
    braking.rig.plan(0.05, braking.rig.now)
    braking.tick(2)
    assert braking.record.targets[-3:] == [0.056, 0.05, 0.06]
    assert len(braking.record.safety_stamps) == 1
    assert not braking.controller.stopping


def test_no_chunk_opens_the_gate_before_the_arm_is_at_rest(braking: Any) -> None:
    run_to(braking, 0.02)
    braking.rig.hold_epoch(2)
    braking.rig.run_epoch(2)
    braking.tick(a=0.026)
    braking.rig.plan(0.026)
    braking.tick(2, a=0.028)
    assert braking.record.targets == BRAKED
    assert not braking.gate.open
    braking.tick(a=0.028)
    assert braking.gate.open


def test_a_hold_that_is_asked_for_again_disturbs_none_that_slows_down(braking: Any) -> None:
    run_to(braking, 0.02)
    assert braking.controller.hold() == ""
    braking.tick(a=0.02)
    assert braking.controller.hold() == ""
    braking.tick(4, a=0.02)
    assert braking.record.targets == BRAKED


def test_release_is_silence_at_once(braking: Any) -> None:
    run_to(braking, 0.02)
    braking.controller.hold()
    braking.tick()
    braking.controller.release()
    braking.tick(4)
    assert braking.record.targets == BRAKED[:1]


@pytest.mark.parametrize("measured", [0.3, None])
def test_after_a_stop_of_the_process_no_old_target_is_commanded(braking: Any, measured: float | None) -> None:
    run_to(braking, 0.02)
    braking.controller.hold()
    braking.tick()
    braking.rig.now += 5 * PERIOD
    braking.tick(a=measured)
    braking.tick(3, a=measured)
    assert braking.record.targets == BRAKED[:1] + [0.3] * (measured is not None)


def test_after_a_stop_that_ros_time_knows_nothing_of_the_arm_is_told_nothing(braking: Any) -> None:
    run_to(braking, 0.02)
    braking.controller.hold()
    braking.tick()
    braking.controller.stopped(1.0)
    braking.tick(4)
    assert braking.record.targets == BRAKED[:1]


def test_a_stop_within_a_tick_lets_no_step_of_a_hold_out(braking: Any) -> None:
    run_to(braking, 0.02)
    braking.controller.hold()
    braking.tick()
    braking.stopped_for = 1.0
    braking.tick(4)
    assert braking.record.targets == BRAKED[:1]


def test_what_was_handed_over_is_replaced_by_the_way_to_rest(timed: Any) -> None:
    handover = Command("joint_trajectory", TRAJECTORY, ("a", "b"), "trajectory", 0.25)
    robot = timed(limits=LIMITS, commands=(handover,))
    run_to(robot, 0.02)
    del robot.record.ahead[:]
    robot.rig.hold_epoch(2)
    robot.tick(6)
    assert robot.record.targets == BRAKED
    assert robot.record.ahead == [[0.028], [0.028], []]


def test_where_all_joints_are_released_none_is_slowed_down(timed: Any) -> None:
    robot = timed(limits=LIMITS, safety=(SafetyGroup(("a", "b"), "release"),))
    run_to(robot, 0.02)
    robot.rig.hold_epoch(2)
    assert not robot.controller.stopping
    robot.tick(4)
    assert robot.record.commands == []
