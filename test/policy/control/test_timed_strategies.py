# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""When inferences are asked for, and how rows are handed over."""

from __future__ import annotations

from typing import Any

import pytest

from flashrt_ros.policy.contract_action import TRAJECTORY, Command

PERIOD = 100_000_000


def test_sync_asks_when_the_arm_has_got_to_the_last_row(timed: Any) -> None:
    robot = timed(strategy="sync")
    robot.start()
    robot.tick(5)
    assert robot.record.targets[-1] == 0.05
    assert len(robot.record.requests) == 1
    robot.tick()
    assert robot.record.requests[-1] == robot.rig.now
    robot.tick(3)
    robot.rig.plan(0.05)
    robot.tick()
    assert robot.record.ticks[-1].cursor == 1  # nothing ran since its observation: row 0
    assert robot.record.targets[-1] == 0.05


def test_sync_waits_between_chunks_with_one_hold_and_no_complaint(timed: Any) -> None:
    robot = timed(strategy="sync")
    robot.start()
    robot.tick(9)
    assert len(robot.record.safety_stamps) == 1
    assert (robot.controller.late_chunks, robot.controller.late_ticks) == (0, 0)
    robot.tick(3)  # longer than heartbeat_timeout
    assert robot.controller.late_chunks == 1
    assert len(robot.record.requests) == 3


def test_sync_asks_for_no_rows_that_the_step_limit_cuts_off(timed: Any) -> None:
    robot = timed(strategy="sync")
    robot.start(step_limit=6)
    robot.tick(8)
    assert robot.token() == "step_limit"
    assert len(robot.record.requests) == 1


def test_async_swaps_at_the_row_that_the_delay_makes_due(timed: Any) -> None:
    for delay in (1, 2, 3):
        robot = timed(strategy="async")
        robot.start()
        robot.tick(2)
        asked = robot.record.requests[-1]
        robot.tick(delay - 1)
        robot.rig.plan(0.02, asked)
        robot.tick()
        assert robot.record.ticks[-1].cursor == delay + 1
        assert robot.record.targets[-1] == pytest.approx(0.02 + 0.01 * delay)


@pytest.fixture
def handing_over(timed: Any) -> Any:
    """0.35 s are this row and two more."""
    return timed(commands=(Command("joint_trajectory", TRAJECTORY, ("a", "b"), "trajectory", 0.35),))


def test_a_trajectory_holds_this_row_and_the_next_ones_within_max_handover(handing_over: Any) -> None:
    handing_over.start()
    assert handing_over.record.ahead[-1] == [0.01, 0.02]
    handing_over.tick(3)
    assert handing_over.record.targets[-1] == 0.03
    assert handing_over.record.ahead[-1] == [0.04, 0.05]
    handing_over.tick(2)
    assert handing_over.record.ahead[-1] == []


def test_a_point_holds_this_row_alone(robot: Any) -> None:
    robot.start()
    robot.tick(2)
    assert robot.record.ahead == [[], [], []]


def test_rows_that_are_handed_over_are_within_the_limits(handing_over: Any) -> None:
    handing_over.rig.run_epoch(1)
    handing_over.tick(a=0.95)
    handing_over.rig.plan(0.98, data=[0.98, 0.0, 0.7, 0.0, 1.5, 0.0] + [0.9, 0.0] * 3)
    handing_over.tick(a=0.95)
    assert handing_over.record.targets[-1] == 0.98
    assert handing_over.record.ahead[-1] == [0.88, 0.98]
    assert handing_over.controller.saturation.counts == {}  # they have not run
    handing_over.tick(2, a=0.95)
    assert handing_over.record.targets[-2:] == [0.88, 0.98]


def test_no_row_beyond_the_step_limit_is_handed_over(handing_over: Any) -> None:
    handing_over.start(step_limit=2)
    assert handing_over.record.ahead[-1] == [0.01]
    handing_over.tick()
    assert handing_over.record.ahead[-1] == []


def test_a_closing_gate_replaces_what_was_handed_over_by_a_hold(handing_over: Any) -> None:
    handing_over.start()
    handing_over.tick()
    handing_over.rig.hold_epoch(2)
    assert handing_over.record.targets[-2:] == [0.01, 0.01]
    assert handing_over.record.safety_stamps == [handing_over.rig.now]
    count = len(handing_over.record.commands)
    handing_over.tick(5)
    assert len(handing_over.record.commands) == count
