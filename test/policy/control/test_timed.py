# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import pytest

from flashrt_ros.policy.gate import Gate
from flashrt_ros.policy.timed import TimedController

PERIOD = 100_000_000


class Timed:
    """A rig with a timer."""

    def __init__(self, rig: Any, *, enabled: bool = True, exact_allowed: bool = False) -> None:
        self.rig = rig
        gate = Gate(epoch=0, enabled=enabled, dry_run=False, exact_allowed=exact_allowed, now=0)
        self.controller = TimedController(rig.contract, rig.record, gate, lambda: rig.now)
        rig.controller = self.controller
        self.gate, self.record = gate, rig.record
        self.controller.activate()
        rig.hold_epoch(1)

    def tick(self, count: int = 1, *, a: float | None = 0.0) -> None:
        """Let periods pass; `a`: the measured joint, None: nothing is measured."""
        for _ in range(count):
            self.rig.now += PERIOD
            if a is not None:
                self.rig.measure(a)
            self.controller.tick()

    def start(self, epoch: int = 1, step_limit: int = 0) -> None:
        """Run an epoch up to its first row."""
        self.rig.run_epoch(epoch, step_limit)
        self.tick()
        self.rig.plan(0.0)
        self.tick()
        assert self.gate.open
        assert self.record.gates[-1] == self.gate.state

    def token(self) -> str:
        return self.record.gates[-1].reason.partition(":")[0]


@pytest.fixture
def robot(rig: Any) -> Timed:
    return Timed(rig)


def test_nothing_moves_before_the_first_chunk_and_then_each_tick_runs_a_row(robot: Timed) -> None:
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


def test_every_tick_is_reported(robot: Timed) -> None:
    robot.tick(2)
    robot.start()
    robot.tick(9)
    assert [tick.stamp for tick in robot.record.ticks] == [n * PERIOD for n in range(1, 14)]


def test_an_inference_is_asked_for_once_at_the_threshold_and_replaces_at_the_current_row(robot: Timed) -> None:
    robot.start()
    robot.tick(4)
    asked = robot.record.requests[-1]
    assert [tick.remaining for tick in robot.record.ticks if tick.stamp == asked] == [3]
    assert robot.record.requests.count(asked) == 1
    assert len(robot.record.requests) == 2
    robot.rig.plan(0.02, asked)  # its row 0 belongs to the tick at `asked`, since which 3 rows ran
    robot.tick()
    assert robot.record.targets[-1] == 0.05


def test_an_unanswered_request_is_made_again(robot: Timed) -> None:
    robot.rig.run_epoch(1)
    robot.tick(8)
    assert len(robot.record.requests) == 2


def test_a_late_chunk_leaves_the_arm_where_it_is_and_goes_on_without_a_jump(robot: Timed) -> None:
    robot.start()
    robot.tick(8)
    assert robot.record.targets[-1] == 0.05
    assert robot.controller.late_ticks == 3
    robot.rig.plan(0.02, robot.record.requests[1])
    robot.tick(a=0.05)
    assert robot.record.targets[-1] == 0.06  # row 4: four rows ran since its observation, however long ago


def test_a_raised_epoch_holds_the_last_command_at_once_and_is_echoed(robot: Timed) -> None:
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


def test_held_in_the_same_epoch_holds_and_forgets_the_plan_too(robot: Timed) -> None:
    robot.start()
    robot.rig.hold_epoch(1)
    assert robot.record.targets == [0.0, 0.0]
    robot.tick(2)
    assert robot.record.ticks[-1].remaining == 0


def test_held_before_the_first_row_forgets_the_chunk_that_waits(robot: Timed) -> None:
    robot.rig.run_epoch(1)
    robot.tick()
    robot.rig.plan(0.0)
    robot.rig.hold_epoch(1)
    robot.tick(2)
    assert robot.record.commands == []


def test_a_new_epoch_asks_at_once_and_takes_chunk_ids_that_begin_anew(robot: Timed) -> None:
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


def test_a_raise_of_a_closed_gate_is_echoed_and_commands_nothing(robot: Timed) -> None:
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
def test_an_implausible_epoch_changes_nothing_and_is_counted(robot: Timed, epoch: int) -> None:
    robot.start()
    robot.rig.hold_epoch(epoch)
    assert robot.gate.open
    assert robot.gate.epoch == 1
    assert robot.controller.dropped == {"implausible epoch": 1}
    robot.rig.hold_epoch(2)
    assert robot.gate.epoch == 2


def test_a_lower_epoch_changes_nothing_and_is_counted(robot: Timed) -> None:
    robot.start()
    robot.rig.hold_epoch(0)
    assert robot.gate.open
    assert robot.gate.epoch == 1
    assert robot.controller.dropped["state of an older epoch"] == 1


@pytest.mark.parametrize("late", [-1, 1])
def test_a_chunk_of_another_epoch_is_dropped_and_counted(robot: Timed, late: int) -> None:
    robot.start()
    robot.rig.hold_epoch(2)
    robot.rig.run_epoch(2)
    robot.tick()
    del robot.record.log[:]
    robot.rig.plan(0.0, robot.rig.now, epoch=2 + late)
    robot.tick(3)
    assert robot.record.commands == []
    assert robot.controller.dropped == {"another epoch": 1}


def test_a_chunk_for_a_closed_gate_is_dropped(robot: Timed) -> None:
    robot.tick()
    robot.rig.plan(0.0, robot.rig.now)
    robot.rig.run_epoch(1)
    robot.tick(2)
    assert robot.record.commands == []
    assert robot.controller.dropped == {"gate closed": 1}


def test_no_action_answers_an_observation_from_before_the_closing(robot: Timed) -> None:
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


def test_a_stale_observation_never_opens_the_gate_and_a_new_one_is_asked_for(robot: Timed) -> None:
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


def test_a_stale_observation_replaces_no_chunk_in_execution(robot: Timed) -> None:
    robot.start()
    robot.tick(12)
    late = robot.record.requests[-1]
    robot.rig.plan(0.02, robot.rig.now - 10 * PERIOD)
    robot.tick()
    assert robot.controller.dropped == {"stale": 1}
    assert robot.gate.open
    assert robot.record.requests[-1] > late


def test_an_observation_of_the_future_is_dropped(robot: Timed) -> None:
    robot.rig.run_epoch(1)
    robot.tick()
    robot.rig.plan(0.0, robot.rig.now + 10 * PERIOD)
    robot.tick()
    assert robot.record.commands == []
    assert robot.controller.dropped == {"observed in the future": 1}


@pytest.mark.parametrize("allowed", [False, True])
def test_an_exact_chunk_is_exempt_only_where_allowed_and_runs_from_its_cursor(rig: Any, allowed: bool) -> None:
    robot = Timed(rig, exact_allowed=allowed)
    robot.rig.run_epoch(1)
    robot.tick()
    robot.rig.plan(0.0, 0, exact=True, start=4)
    robot.tick()
    assert robot.record.targets == ([0.04] if allowed else [])


def test_a_first_action_beyond_the_tolerance_keeps_the_gate_closed(robot: Timed) -> None:
    robot.rig.run_epoch(1)
    robot.tick()
    robot.rig.plan(0.2)
    robot.tick()
    assert robot.record.commands == []
    assert robot.token() == "start_tolerance"
    assert all(part in robot.record.gates[-1].reason for part in ("'a'", "0.2000", "0.0000", "0.15"))
    assert robot.gate.fault
    robot.rig.plan(0.0, robot.rig.now)
    robot.tick(2)
    assert robot.record.commands == []  # this epoch is over


def test_an_arm_beyond_its_limits_does_not_start_and_is_held_where_it_is(robot: Timed) -> None:
    robot.rig.run_epoch(1)
    robot.tick(a=1.2)
    robot.rig.plan(1.2)
    robot.tick(a=1.2)
    assert not robot.gate.open
    assert robot.token() == "start_tolerance"
    assert "'a' has its limit at 1.0000, it is measured at 1.2000" in robot.gate.reason
    assert robot.controller.hold() == ""
    assert robot.record.targets == [1.2]


def test_an_arm_just_beyond_its_limits_starts_at_the_limit(robot: Timed) -> None:
    robot.rig.run_epoch(1)
    robot.tick(a=1.12)
    robot.rig.plan(0.98)
    robot.tick(a=1.12)
    robot.tick(a=1.0)
    assert robot.record.targets == [1.0, 0.99]


def test_a_first_action_within_the_tolerance_is_reached_in_steps(robot: Timed) -> None:
    robot.rig.run_epoch(1)
    robot.tick()
    robot.rig.plan(0.14)
    robot.tick(2)
    assert robot.record.targets == [0.1, 0.15]
    assert robot.controller.saturation.counts == {"a": 1}


def test_rows_are_saturated_to_position(robot: Timed) -> None:
    robot.rig.run_epoch(1)
    robot.tick(a=0.98)
    robot.rig.plan(0.98)
    robot.tick(6, a=0.98)
    assert robot.record.targets == [0.98, 0.99, 1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("changed", [{"data": [float("nan")] * 12}, {"names": ["a", "c"]}, {"horizon": 5}, {"dt": 1}])
@pytest.mark.parametrize("opened", [False, True])
def test_an_unfit_chunk_closes_the_gate(robot: Timed, changed: dict[str, Any], opened: bool) -> None:
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


def test_stale_joints_keep_the_gate_closed_and_a_new_observation_is_asked_for(robot: Timed) -> None:
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


def test_joints_that_become_stale_close_the_gate(robot: Timed) -> None:
    robot.start()
    robot.tick(3, a=None)
    assert robot.gate.open
    robot.tick(a=None)
    assert (robot.gate.open, robot.token(), robot.gate.fault) == (False, "joints", True)


def test_nan_in_the_measured_joints_is_never_used(robot: Timed) -> None:
    robot.rig.run_epoch(1)
    robot.tick(a=None)
    robot.rig.measure(float("nan"))
    robot.rig.plan(0.0)
    robot.tick(a=None)
    assert robot.record.commands == []


def test_the_step_limit_closes_the_gate_after_that_many_rows(robot: Timed) -> None:
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


def test_no_inference_is_asked_for_whose_rows_the_step_limit_cuts_off(robot: Timed) -> None:
    robot.start(step_limit=6)
    robot.tick(4)
    assert len(robot.record.requests) == 1


def test_a_lost_heartbeat_closes_the_gate_for_this_epoch(robot: Timed) -> None:
    robot.start()
    robot.controller.heartbeat_lost()
    assert (robot.gate.open, robot.token(), robot.gate.fault) == (False, "heartbeat", True)
    assert robot.record.targets[-1] == robot.record.targets[-2]
    robot.rig.run_epoch(1)
    robot.tick()
    assert not robot.gate.armed
    robot.rig.hold_epoch(2)
    robot.start(2)


def test_a_lost_heartbeat_of_a_policy_that_is_held_is_no_fault(robot: Timed) -> None:
    robot.controller.heartbeat_lost()
    assert not robot.gate.fault


def test_disable_closes_in_no_tick_and_enable_alone_moves_nothing(robot: Timed) -> None:
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


def test_where_enable_is_required_nothing_runs_before_it(rig: Any) -> None:
    robot = Timed(rig, enabled=False)
    robot.rig.run_epoch(1)
    assert robot.token() == "disabled"
    robot.controller.enable(True)
    robot.rig.hold_epoch(2)
    robot.start(2)


def test_hold_stops_and_the_next_epoch_moves_again(robot: Timed) -> None:
    robot.start()
    robot.tick()
    assert robot.controller.hold() == ""
    assert (robot.gate.open, robot.token()) == (False, "hold")
    assert robot.record.targets == [0.0, 0.01, 0.01]
    robot.rig.hold_epoch(2)
    robot.start(2)


def test_hold_of_a_closed_gate_commands_the_measured_joints(robot: Timed) -> None:
    robot.tick(a=0.3)
    assert robot.controller.hold() == ""
    assert robot.record.targets == [0.3]
    robot.tick(5, a=None)
    assert "old" in robot.controller.hold()
    assert len(robot.record.commands) == 1


def test_hold_while_inactive_commands_nothing_and_says_so(robot: Timed) -> None:
    robot.tick(a=0.3)
    robot.controller.deactivate()
    assert "inactive" in robot.controller.hold()
    assert robot.record.commands == []


def test_joints_that_were_overtaken_replace_no_newer_ones(robot: Timed) -> None:
    robot.tick(10, a=0.3)
    robot.rig.measure(0.1, stamp=robot.rig.now - PERIOD)
    assert robot.controller.hold() == ""
    assert robot.record.targets == [0.3]
    assert robot.controller.dropped == {"older joints": 1}
    robot.rig.measure(0.1, stamp=robot.rig.now - 4 * PERIOD)
    assert "old" in robot.controller.hold()


def test_release_is_silence_until_hold(robot: Timed) -> None:
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


def test_deactivate_does_the_safety_action_and_activate_moves_nothing(robot: Timed) -> None:
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


def test_time_that_goes_back_closes_the_gate_and_the_next_epoch_runs(robot: Timed) -> None:
    robot.tick(50)
    robot.start()
    robot.rig.now -= 20 * PERIOD
    robot.tick(a=None)
    assert (robot.gate.open, robot.token()) == (False, "time")
    robot.rig.hold_epoch(2)
    robot.start(2)


def test_a_repeated_chunk_is_dropped(robot: Timed) -> None:
    robot.start()
    robot.rig.plan(0.0, robot.rig.now, chunk_id=1)
    assert robot.controller.dropped == {"repeated": 1}
