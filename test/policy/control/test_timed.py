# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import pytest

PERIOD = 100_000_000


def test_nothing_moves_before_the_first_chunk_and_then_each_tick_runs_a_row(robot: Any) -> None:
    robot.tick(3)
    assert robot.record.commands == []
    assert robot.record.requests == []
    robot.rig.run_epoch(1)
    robot.tick(2)
    assert robot.record.commands == []
    assert robot.record.requests == [robot.record.ticks[-2].stamp]
    robot.rig.plan(0.0)
    robot.tick(3)
    assert robot.record.targets == [0.0, 0.01, 0.02]
    assert [stamp for stamp, _ in robot.record.commands] == [6 * PERIOD, 7 * PERIOD, 8 * PERIOD]
    newest = robot.record.ticks[-1]
    assert (newest.active, newest.chunk_id, newest.cursor, newest.remaining, newest.steps) == (True, 1, 3, 3, 3)


def test_every_tick_is_reported(robot: Any) -> None:
    robot.tick(2)
    robot.start()
    robot.tick(9)
    assert [tick.stamp for tick in robot.record.ticks] == [n * PERIOD for n in range(1, 14)]


def test_an_inference_is_asked_for_once_at_the_threshold_and_replaces_at_the_current_row(robot: Any) -> None:
    robot.start()
    robot.tick(4)
    asked = robot.record.requests[-1]
    assert [tick.remaining for tick in robot.record.ticks if tick.stamp == asked] == [3]
    assert robot.record.requests.count(asked) == 1
    assert len(robot.record.requests) == 2
    robot.rig.plan(0.02, asked)  # its row 0 belongs to the tick at `asked`, since which 3 rows ran
    robot.tick()
    assert robot.record.targets[-1] == 0.05


def test_an_unanswered_request_is_made_again(robot: Any) -> None:
    robot.rig.run_epoch(1)
    robot.tick(8)
    assert len(robot.record.requests) == 2


@pytest.mark.parametrize("late", [-1, 1])
def test_a_chunk_of_another_epoch_is_dropped_and_counted(robot: Any, late: int) -> None:
    robot.start()
    robot.rig.hold_epoch(2)
    robot.rig.run_epoch(2)
    robot.tick()
    del robot.record.log[:]
    robot.rig.plan(0.0, robot.rig.now, epoch=2 + late)
    robot.tick(3)
    assert robot.record.commands == []
    assert robot.controller.dropped == {"another epoch": 1}


def test_a_chunk_for_a_closed_gate_is_dropped(robot: Any) -> None:
    robot.tick()
    robot.rig.plan(0.0, robot.rig.now)
    robot.rig.run_epoch(1)
    robot.tick(2)
    assert robot.record.commands == []
    assert robot.controller.dropped == {"gate closed": 1}


def test_no_action_answers_an_observation_from_before_the_closing(robot: Any) -> None:
    robot.start()
    robot.rig.hold_epoch(2)
    closed_at = robot.gate.closed_at
    robot.rig.run_epoch(2)
    robot.tick()
    del robot.record.log[:]
    robot.rig.plan(0.0, closed_at)
    robot.tick(2)
    assert robot.record.commands == []
    assert robot.controller.dropped == {"observed before the gate closed": 1}
    assert len(robot.record.requests) == 1  # a new observation is asked for
    robot.rig.plan(0.0, closed_at + 1)
    robot.tick()
    assert robot.record.targets == [0.0]


def test_a_stale_observation_never_opens_the_gate_and_a_new_one_is_asked_for(robot: Any) -> None:
    robot.rig.run_epoch(1)
    robot.tick()
    observed = robot.rig.now
    robot.tick(9)  # max_age 0.3 s and heartbeat_timeout 0.5 s are 8 ticks
    robot.rig.plan(0.0, observed)
    robot.tick()
    assert not robot.gate.open
    assert robot.controller.dropped == {"stale": 1}
    assert robot.record.requests[-1] == robot.rig.now
    robot.rig.plan(0.0, robot.rig.now - 8 * PERIOD)
    robot.tick()
    assert robot.gate.open


def test_a_stale_observation_replaces_no_chunk_in_execution(robot: Any) -> None:
    robot.start()
    robot.tick(12)
    late = robot.record.requests[-1]
    robot.rig.plan(0.02, robot.rig.now - 10 * PERIOD)
    robot.tick()
    assert robot.controller.dropped == {"stale": 1}
    assert robot.gate.open
    assert robot.record.requests[-1] > late


def test_an_observation_of_the_future_is_dropped(robot: Any) -> None:
    robot.rig.run_epoch(1)
    robot.tick()
    robot.rig.plan(0.0, robot.rig.now + 10 * PERIOD)
    robot.tick()
    assert robot.record.commands == []
    assert robot.controller.dropped == {"observed in the future": 1}


@pytest.mark.parametrize("allowed", [False, True])
def test_an_exact_chunk_is_exempt_only_where_allowed_and_runs_from_its_cursor(timed: Any, allowed: bool) -> None:
    robot = timed(exact_allowed=allowed)
    robot.rig.run_epoch(1)
    robot.tick()
    robot.rig.plan(0.0, 0, exact=True, start=4)
    robot.tick()
    assert robot.record.targets == ([0.04] if allowed else [])


def test_rows_are_saturated_to_position(robot: Any) -> None:
    robot.rig.run_epoch(1)
    robot.tick(a=0.98)
    robot.rig.plan(0.98)
    robot.tick(6, a=0.98)
    assert robot.record.targets == [0.98, 0.99, 1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    "changed", [{"data": [0.0] * 11 + [float("nan")]}, {"names": ["a", "c"]}, {"horizon": 5}, {"dt": 1}]
)
@pytest.mark.parametrize("opened", [False, True])
def test_an_unfit_chunk_closes_the_gate(robot: Any, changed: dict[str, Any], opened: bool) -> None:
    if opened:
        robot.start()
    else:
        robot.rig.run_epoch(1)
    robot.tick()
    del robot.record.log[:]
    robot.rig.plan(0.0, robot.rig.now, **changed)
    assert (robot.gate.open, robot.token(), robot.gate.fault) == (False, "bad_chunk", True)
    assert len(robot.record.commands) == opened  # the safety action
    assert sum(robot.controller.dropped.values()) == 1


def test_no_inference_is_asked_for_whose_rows_the_step_limit_cuts_off(robot: Any) -> None:
    robot.start(step_limit=6)
    robot.tick(4)
    assert len(robot.record.requests) == 1


def test_a_repeated_chunk_is_dropped(robot: Any) -> None:
    robot.start()
    robot.rig.plan(0.0, robot.rig.now, chunk_id=1)
    assert robot.controller.dropped == {"repeated": 1}


@pytest.mark.parametrize("forged", [2**64 - 1, 2**33])
def test_a_chunk_of_an_implausible_id_is_dropped_and_those_behind_it_are_not(robot: Any, forged: int) -> None:
    robot.start()
    robot.rig.plan(0.0, robot.rig.now, chunk_id=forged)
    assert robot.controller.dropped == {"implausible id": 1}
    robot.rig.plan(0.0, robot.rig.now, chunk_id=2)
    assert robot.controller.queue.staged is not None
    assert robot.controller.queue.staged.chunk_id == 2
