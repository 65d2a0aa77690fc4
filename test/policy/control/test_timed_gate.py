# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What opens and closes the gate of a robot that a timer paces."""

from __future__ import annotations

from typing import Any

import pytest

PERIOD = 100_000_000


def test_a_raised_epoch_holds_the_last_command_at_once_and_is_echoed(robot: Any) -> None:
    robot.start()
    robot.tick()
    robot.rig.now += 1000
    del robot.record.log[:]
    robot.rig.hold_epoch(2)
    assert robot.record.targets == [0.01]
    assert robot.record.commands[0][0] == robot.rig.now
    (echo,) = robot.record.gates
    assert (echo.epoch, echo.open, echo.closed_at, echo.reason) == (2, False, robot.rig.now, "held: test")
    robot.tick(5)
    assert robot.record.targets == [0.01]
    assert not any(tick.active for tick in robot.record.ticks)
    assert robot.record.ticks[-1].steps == 0


def test_held_in_the_same_epoch_holds_and_forgets_the_plan_too(robot: Any) -> None:
    robot.start()
    robot.rig.hold_epoch(1)
    assert robot.record.targets == [0.0, 0.0]
    robot.tick(2)
    assert robot.record.ticks[-1].remaining == 0


def test_held_before_the_first_row_forgets_the_chunk_that_waits(robot: Any) -> None:
    robot.rig.run_epoch(1)
    robot.tick()
    robot.rig.plan(0.0)
    robot.rig.hold_epoch(1)
    robot.tick(2)
    assert robot.record.commands == []


def test_a_new_epoch_asks_at_once_and_takes_chunk_ids_that_begin_anew(robot: Any) -> None:
    robot.start()
    robot.tick(4)
    assert robot.record.requests[-1] == robot.rig.now - 2 * PERIOD  # not answered
    robot.rig.hold_epoch(2)
    robot.rig.run_epoch(2)
    robot.tick()
    assert robot.record.requests[-1] == robot.rig.now
    robot.rig.plan(0.0, chunk_id=1)
    robot.tick()
    assert robot.gate.open


def test_a_raise_of_a_closed_gate_is_echoed_and_commands_nothing(robot: Any) -> None:
    robot.rig.hold_epoch(2)
    assert robot.record.gates[-1].epoch == 2
    assert robot.record.commands == []
    robot.start(2)
    robot.rig.hold_epoch(3)
    count = len(robot.record.commands)
    robot.rig.hold_epoch(4)
    assert robot.record.gates[-1].epoch == 4
    assert len(robot.record.commands) == count


@pytest.mark.parametrize("epoch", [2**64 - 1, 2**32 + 2])
def test_an_implausible_epoch_changes_nothing_and_is_counted(robot: Any, epoch: int) -> None:
    robot.start()
    robot.rig.hold_epoch(epoch)
    assert robot.gate.open
    assert robot.gate.epoch == 1
    assert robot.controller.dropped == {"implausible epoch": 1}
    robot.rig.hold_epoch(2)
    assert robot.gate.epoch == 2


def test_a_lower_epoch_changes_nothing_and_is_counted(robot: Any) -> None:
    robot.start()
    robot.rig.hold_epoch(0)
    assert robot.gate.open
    assert robot.gate.epoch == 1
    assert robot.controller.dropped["state of an older epoch"] == 1


def test_the_step_limit_closes_the_gate_after_that_many_rows(robot: Any) -> None:
    robot.start(step_limit=3)
    robot.tick(4)
    assert robot.record.targets == [0.0, 0.01, 0.02, 0.02]  # the last one is the safety action
    assert robot.token() == "step_limit"
    assert not robot.gate.fault
    count = len(robot.record.gates)
    robot.tick(2)
    assert len(robot.record.gates) == count
    closing = robot.record.log.index(robot.record.gates[-1])
    assert any(
        getattr(entry, "steps", 0) == 3 for entry in robot.record.log[:closing]
    )  # the last row is reported before


def test_a_lost_heartbeat_closes_the_gate_for_this_epoch(robot: Any) -> None:
    robot.start()
    robot.controller.heartbeat_lost()
    assert (robot.gate.open, robot.token(), robot.gate.fault) == (False, "heartbeat", True)
    assert robot.record.targets[-1] == robot.record.targets[-2]
    robot.rig.run_epoch(1)
    robot.tick()
    assert not robot.gate.armed
    robot.rig.hold_epoch(2)
    robot.start(2)


def test_a_lost_heartbeat_of_a_policy_that_is_held_is_no_fault(robot: Any) -> None:
    robot.controller.heartbeat_lost()
    assert not robot.gate.fault


def test_disable_closes_in_no_tick_and_enable_alone_moves_nothing(robot: Any) -> None:
    robot.start()
    robot.controller.enable(False)
    assert (robot.gate.open, robot.token()) == (False, "disabled")
    robot.controller.enable(True)
    robot.rig.run_epoch(1)
    robot.tick()
    robot.rig.plan(0.0, robot.rig.now)
    count = len(robot.record.commands)
    robot.tick(3)
    assert len(robot.record.commands) == count
    robot.rig.hold_epoch(2)
    robot.start(2)


def test_where_enable_is_required_nothing_runs_before_it(timed: Any) -> None:
    robot = timed(enabled=False)
    robot.rig.run_epoch(1)
    assert robot.token() == "disabled"
    robot.controller.enable(True)
    robot.rig.hold_epoch(2)
    robot.start(2)


def test_another_publisher_closes_the_gate_and_keeps_it_closed_until_it_is_gone(robot: Any) -> None:
    robot.start()
    robot.controller.rivals("'/teleop'")
    assert (robot.gate.open, robot.token(), robot.gate.fault) == (False, "publisher", True)
    assert "'/teleop'" in robot.gate.reason
    count = len(robot.record.gates)
    robot.controller.rivals("'/teleop'")
    assert len(robot.record.gates) == count
    robot.rig.hold_epoch(2)
    robot.rig.run_epoch(2)
    assert not robot.gate.armed
    assert robot.token() == "publisher"
    robot.controller.rivals("")
    robot.rig.run_epoch(2)
    assert not robot.gate.armed
    robot.rig.hold_epoch(3)
    robot.start(3)


def test_the_reason_follows_who_publishes_and_stays_when_nobody_does_any_more(robot: Any) -> None:
    robot.start()
    robot.controller.rivals("a node whose name has not come yet")
    for names in ("'/teleop'", ""):
        robot.controller.rivals(names)
        assert "'/teleop'" in robot.gate.reason
    assert "'/teleop'" in robot.record.gates[-1].reason
    robot.controller.enable(False)
    robot.controller.rivals("'/teleop'")
    assert robot.token() == "disabled"


def test_a_leap_ahead_of_time_closes_the_gate_however_new_the_joints_are(robot: Any) -> None:
    robot.start()
    robot.rig.now += 2 * PERIOD
    robot.tick()
    assert robot.gate.open
    robot.rig.now += 3 * PERIOD  # a stop of the process, for one, of more than max_age
    robot.tick(a=0.3)
    assert (robot.gate.open, robot.token(), robot.gate.fault) == (False, "time", True)
    assert robot.record.targets == [0.0, 0.01, 0.3]  # the last command would be an old action
    robot.rig.hold_epoch(2)
    robot.start(2)


@pytest.mark.parametrize("event", ["tick", "heartbeat_lost", "deactivate"])
def test_after_a_stop_an_arm_that_may_be_anywhere_is_told_nothing(robot: Any, event: str) -> None:
    robot.start()
    count = len(robot.record.commands)
    robot.rig.now += 1000 * PERIOD
    getattr(robot.controller, event)()
    assert not robot.gate.open
    assert len(robot.record.commands) == count


def test_a_hold_behind_a_stop_that_ros_time_knows_nothing_of_repeats_no_old_command(robot: Any) -> None:
    robot.start()
    count = len(robot.record.commands)
    robot.stopped_for = 1.0
    robot.rig.hold_epoch(2)
    assert not robot.gate.open
    assert len(robot.record.commands) == count


def test_a_stop_within_a_tick_lets_nothing_of_it_out(robot: Any) -> None:
    robot.start()
    robot.tick()
    count = len(robot.record.commands)
    robot.stopped_for = 1.0
    robot.tick()
    assert (robot.gate.open, robot.token(), robot.gate.fault) == (False, "time", True)
    assert len(robot.record.commands) == count
    assert (robot.record.ticks[-1].active, robot.record.ticks[-1].steps) == (False, count)
    robot.rig.hold_epoch(2)
    robot.start(2)


def test_slow_ticks_are_no_leap_of_time(timed: Any) -> None:
    robot = timed(rate=2.0)  # slower than max_age
    robot.rig.run_epoch(1)
    for _ in range(3):
        robot.rig.now += 4 * PERIOD
        robot.tick()
        if not robot.gate.open:
            robot.rig.plan(0.0, dt=5 * PERIOD)
    assert robot.gate.open


def test_a_reset_in_mid_chunk_forgets_its_rows(robot: Any) -> None:
    robot.rig.run_epoch(1)
    robot.tick()
    robot.rig.plan(0.0, horizon=30, data=[0.0, 0.0] * 30)
    robot.tick(5)
    assert robot.controller.queue.remaining == 25
    robot.rig.hold_epoch(2)
    assert robot.controller.queue.remaining == 0
    robot.rig.run_epoch(2)
    robot.tick()
    robot.rig.plan(0.05)
    robot.tick()
    assert robot.record.targets[-1] == 0.05  # row 0 of the new chunk
    assert (robot.record.ticks[-1].chunk_id, robot.record.ticks[-1].cursor) == (2, 1)


def test_hold_stops_and_the_next_epoch_moves_again(robot: Any) -> None:
    robot.start()
    robot.tick()
    assert robot.controller.hold() == ""
    assert (robot.gate.open, robot.token()) == (False, "hold")
    assert robot.record.targets == [0.0, 0.01, 0.01]
    robot.rig.hold_epoch(2)
    robot.start(2)


def test_hold_of_a_closed_gate_commands_the_measured_joints(robot: Any) -> None:
    robot.tick(a=0.3)
    assert robot.controller.hold() == ""
    assert robot.record.targets == [0.3]
    robot.tick(5, a=None)
    assert "old" in robot.controller.hold()
    assert len(robot.record.commands) == 1


def test_hold_while_inactive_commands_nothing_and_says_so(robot: Any) -> None:
    robot.tick(a=0.3)
    robot.controller.deactivate()
    assert "inactive" in robot.controller.hold()
    assert robot.record.commands == []


def test_release_is_silence_until_hold(robot: Any) -> None:
    robot.start()
    count = len(robot.record.commands)
    robot.controller.release()
    assert (robot.record.gates[-1].open, robot.token()) == (False, "released")
    robot.tick()
    assert robot.record.ticks[-1].remaining == 0
    robot.rig.hold_epoch(2)
    robot.rig.run_epoch(2)
    robot.tick(3, a=0.5)
    assert len(robot.record.commands) == count
    assert robot.token() == "released"
    robot.controller.hold()
    assert robot.record.targets[-1] == 0.5  # where it was moved to, not the last command
    robot.rig.hold_epoch(3)
    robot.rig.run_epoch(3)
    assert robot.gate.armed


def test_deactivate_does_the_safety_action_and_activate_moves_nothing(robot: Any) -> None:
    robot.start()
    count = len(robot.record.commands)
    robot.controller.deactivate()
    assert len(robot.record.commands) == count + 1
    assert robot.token() == "inactive"
    robot.controller.activate()
    assert robot.token() == "spent"  # of an epoch that still runs
    robot.rig.run_epoch(1)
    assert not robot.gate.armed
    robot.rig.hold_epoch(2)
    robot.controller.deactivate()
    robot.controller.activate()
    assert robot.token() == "held"


def test_time_that_goes_back_closes_the_gate_and_the_next_epoch_runs(robot: Any) -> None:
    robot.tick(50)
    robot.start()
    robot.rig.now -= 20 * PERIOD
    robot.tick(a=None)
    assert (robot.gate.open, robot.token()) == (False, "time")
    robot.rig.hold_epoch(2)
    robot.start(2)
