# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Chunks that come late, and how long they take."""

from __future__ import annotations

from typing import Any

import pytest

PERIOD = 100_000_000


def test_a_late_chunk_leaves_the_arm_where_it_is_and_goes_on_without_a_jump(robot: Any) -> None:
    robot.start()
    robot.tick(8)
    assert robot.record.targets[-1] == 0.05
    assert robot.controller.late_ticks == 3
    robot.rig.plan(0.02, robot.record.requests[1])
    robot.tick(a=0.05)
    assert robot.record.targets[-1] == 0.06  # row 4: four rows ran since its observation, however long ago


def test_rows_that_run_out_become_one_hold_and_then_silence(robot: Any) -> None:
    robot.start()
    robot.tick(5)
    assert (robot.controller.late_chunks, robot.record.safety_stamps) == (0, [])
    robot.tick()
    held_at = robot.rig.now
    assert robot.record.commands[-1] == (held_at, robot.record.commands[-2][1])
    robot.tick(2)
    assert robot.record.safety_stamps == [held_at]
    assert (robot.controller.late_chunks, robot.controller.late_ticks, robot.controller.holds) == (1, 3, 1)
    assert robot.gate.open


def test_each_late_chunk_is_held_for_and_counted(robot: Any) -> None:
    """Inference that always takes longer than a chunk."""
    robot.start()
    for late in range(1, 4):
        robot.tick(8)
        assert robot.controller.late_chunks == late
        held = robot.record.targets[-1]
        robot.rig.plan(held)
        robot.tick()
        assert robot.record.targets[-1] == pytest.approx(held, abs=0.05)
        assert robot.record.ticks[-1].active


def test_a_warm_up_loses_no_row_and_is_no_latency(robot: Any) -> None:
    """The first answer takes 700 ms, and nothing has been consumed meanwhile."""
    robot.rig.run_epoch(1)
    robot.tick()
    robot.tick(7)
    robot.rig.plan(0.0, robot.record.requests[0])
    robot.tick()
    assert robot.record.targets == [0.0]
    assert len(robot.controller.latency) == 0


def test_latencies_are_of_answers_in_their_stride(robot: Any) -> None:
    robot.start()
    robot.tick(2)
    asked = robot.record.requests[-1]
    robot.tick(2)
    robot.rig.plan(0.02, asked)
    assert robot.controller.latency.last == robot.rig.now - asked
    assert len(robot.controller.latency) == 1
    robot.rig.hold_epoch(2)  # a restore
    robot.start(2)
    assert len(robot.controller.latency) == 1


def test_the_answer_to_a_request_that_was_made_twice_is_no_latency(robot: Any) -> None:
    robot.start()
    robot.tick(10)
    assert len(robot.record.requests) == 3
    robot.rig.plan(0.02, robot.record.requests[1])
    assert len(robot.controller.latency) == 0
