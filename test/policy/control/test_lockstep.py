# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import pytest

from flashrt_ros.policy.gate import Gate
from flashrt_ros.policy.lockstep import LockstepController

PERIOD = 100_000_000
AFTER = 2


class World:
    """A rig whose robot shows instants and goes on when the command of the newest has come."""

    def __init__(self, rig: Any) -> None:
        self.rig = rig
        self.gate = Gate(epoch=0, enabled=True, dry_run=False, exact_allowed=True, now=0)
        self.controller = LockstepController(rig.contract, rig.record, self.gate, lambda: rig.now, AFTER)
        rig.controller = self.controller
        self.record = rig.record
        self.position = 0.0
        self.controller.activate()

    def show(self, *, clock_first: bool = False) -> None:
        """Show the newest instant."""
        if not clock_first:
            self.rig.measure(self.position)
        self.controller.clock(self.rig.now)
        if clock_first:
            self.rig.measure(self.position)

    def step(self, **how: Any) -> None:
        """Show the next instant; the arm has followed the last command."""
        if self.record.commands:
            self.position = self.record.commands[-1][1][0]
        self.rig.now += PERIOD
        self.show(**how)

    def settle(self, **how: Any) -> None:
        """Let the world go on for as long as each instant gets its command."""
        if self.rig.now == 0:
            self.step(**how)
        while self.record.commands and self.record.commands[-1][0] == self.rig.now:
            self.step(**how)

    def stamps(self) -> list[int]:
        return [stamp // PERIOD for stamp, _ in self.record.commands]


@pytest.fixture
def world(rig: Any) -> World:
    return World(rig)


def open_at_two(world: World, epoch: int = 1, step_limit: int = 0) -> None:
    """Hold and run an epoch: one safety action at instant 1, then rows from instant 2 on, until the world waits."""
    world.rig.hold_epoch(epoch)
    world.settle()
    world.rig.run_epoch(epoch, step_limit)
    world.rig.plan(world.position)
    world.settle()


def test_a_raised_epoch_lets_one_instant_pass_and_then_time_stands_still(world: World) -> None:
    world.settle()
    assert world.record.commands == []
    world.rig.hold_epoch(1)
    world.settle()
    assert world.stamps() == [1]
    assert world.rig.now == 2 * PERIOD
    assert world.rig.now > world.gate.closed_at


def test_the_instant_counts_when_clock_and_joints_have_come_in_any_order(world: World) -> None:
    world.rig.hold_epoch(1)
    world.rig.now = PERIOD
    world.controller.clock(PERIOD)
    assert world.record.commands == []
    world.rig.measure(0.3)
    assert world.record.commands == [(PERIOD, [0.3, 0.0])]
    world.settle(clock_first=True)
    assert world.stamps() == [1]


def test_running_asks_from_the_standing_instant_and_waits_for_the_chunk(world: World) -> None:
    world.rig.hold_epoch(1)
    world.settle()
    world.rig.run_epoch(1)
    assert world.record.requests == [2 * PERIOD]
    assert world.stamps() == [1]
    world.rig.plan(0.0)
    assert world.stamps() == [1, 2]
    assert world.gate.open


def test_the_tick_at_which_a_chunk_is_due_waits_for_it(world: World) -> None:
    open_at_two(world)
    # rows 0 to 2 ran at 2, 3, 4; three are left, so instant 4 asks, 5 runs, 6 waits
    assert world.record.requests == [2 * PERIOD, 4 * PERIOD]
    assert world.stamps() == [1, 2, 3, 4, 5]
    world.rig.plan(0.5, 4 * PERIOD)
    assert world.record.targets[-2:] == [0.03, 0.13]  # its row 2, one step limit away


def test_a_chunk_that_comes_early_waits_for_its_tick(world: World) -> None:
    world.rig.hold_epoch(1)
    world.settle()
    world.rig.run_epoch(1)
    world.rig.plan(0.0)
    world.step()
    world.step()
    assert world.record.requests[-1] == 4 * PERIOD
    world.rig.plan(0.02, 4 * PERIOD)
    world.step()
    assert world.controller.queue.chunk_id == 1
    world.step()
    assert world.controller.queue.chunk_id == 2
    assert world.record.targets == [0.0, 0.0, 0.01, 0.02, 0.03, 0.04]


@pytest.mark.parametrize("clock_first", [False, True])
def test_commands_do_not_depend_on_when_chunks_come(contract: Any, rig: Any, clock_first: bool) -> None:
    def episode(early: bool) -> tuple[list[Any], list[int]]:
        own = World(type(rig)(contract))
        own.rig.hold_epoch(1)
        own.settle(clock_first=clock_first)
        own.rig.run_epoch(1, step_limit=20)
        answered = 0
        while own.gate.armed:
            requests = own.record.requests
            commanded = own.record.commands[-1][0] == own.rig.now
            if len(requests) > answered and (early or not commanded):
                own.rig.plan(0.03 * len(requests), requests[-1])
                answered = len(requests)
            if commanded:
                own.step(clock_first=clock_first)
        own.settle(clock_first=clock_first)
        return own.record.commands, own.record.requests

    commands, requests = episode(early=True)
    assert len(commands) == 1 + 20 + 1
    assert episode(early=False) == (commands, requests)


def test_the_step_limit_leaves_one_safety_action_and_then_stands(world: World) -> None:
    open_at_two(world, step_limit=3)
    assert world.stamps() == [1, 2, 3, 4, 5]
    assert world.record.targets == [0.0, 0.0, 0.01, 0.02, 0.02]
    assert world.rig.now == 6 * PERIOD


@pytest.mark.parametrize("settled_between", [False, True])
def test_the_number_of_safety_actions_does_not_depend_on_timing(world: World, settled_between: bool) -> None:
    open_at_two(world, step_limit=3)
    stood = world.rig.now
    world.rig.hold_epoch(2)
    if settled_between:
        world.settle()
    world.rig.hold_epoch(3)
    world.rig.run_epoch(3)
    world.settle()
    assert world.rig.now == stood + 2 * PERIOD
    assert world.record.requests[-1] == world.rig.now


def test_a_raise_of_a_closed_gate_holds_where_the_world_is_and_not_the_last_command(world: World) -> None:
    open_at_two(world, step_limit=3)
    world.position = 0.4  # the world was loaded
    world.rig.now += PERIOD
    world.show()
    world.rig.hold_epoch(2)
    assert world.record.targets[-1] == 0.4


def test_a_start_beyond_the_tolerance_leaves_the_instant_for_the_next_epoch(world: World) -> None:
    world.rig.hold_epoch(1)
    world.settle()
    world.rig.run_epoch(1)
    world.rig.plan(0.9)
    assert world.record.gates[-1].reason.startswith("start_tolerance:")
    assert world.stamps() == [1]
    world.rig.hold_epoch(2)
    world.settle()
    assert world.stamps() == [1, 2]
    world.rig.run_epoch(2)
    world.rig.plan(0.0)
    assert world.gate.open


def test_silence_while_a_tick_waits_ends_in_the_safety_action(world: World) -> None:
    open_at_two(world)
    waiting = world.rig.now
    assert world.stamps()[-1] * PERIOD == waiting - PERIOD
    world.controller.heartbeat_lost()
    assert world.record.commands[-1] == (waiting, world.record.commands[-2][1])
    world.settle()
    assert world.rig.now == waiting + PERIOD


def test_a_late_chunk_is_dropped_and_asked_for_again(world: World) -> None:
    open_at_two(world)
    world.rig.plan(0.0, 4 * PERIOD, horizon=2, data=[0.0] * 4)  # due at row 2: none is left
    world.settle()
    assert world.controller.dropped == {"late: all its rows are past": 1}
    assert world.record.requests[-1] > 4 * PERIOD


def test_the_joints_of_the_instant_itself_are_held(world: World) -> None:
    world.rig.hold_epoch(1)
    world.settle()
    world.rig.now, world.position = 3 * PERIOD, 0.2
    world.controller.clock(world.rig.now)
    world.rig.hold_epoch(2)
    assert world.stamps() == [1]  # the joints of instant 3 have not come
    world.rig.measure(world.position)
    assert world.record.commands[-1] == (3 * PERIOD, [0.2, 0.0])


def test_an_inactive_controller_sends_nothing_until_it_is_activated(world: World) -> None:
    world.controller.deactivate()
    world.rig.hold_epoch(1)
    world.settle()
    assert world.record.commands == []
    world.controller.activate()
    assert world.stamps() == [1]


def test_epochs_raised_while_inactive_leave_one_safety_action(world: World) -> None:
    world.controller.deactivate()
    for epoch in range(1, 50):
        world.rig.hold_epoch(epoch)
    world.controller.activate()
    world.settle()
    assert world.stamps() == [1]


def test_a_repeated_instant_gets_the_same_command_again_only_while_it_may(world: World) -> None:
    world.rig.hold_epoch(1)
    world.settle()
    world.show()
    assert world.stamps() == [1]
    world.rig.run_epoch(1)
    world.rig.plan(0.0)
    world.show()
    assert world.stamps() == [1, 2, 2]
    world.rig.hold_epoch(2)
    world.show()
    assert world.stamps() == [1, 2, 2]
    world.step()
    world.show()
    assert world.stamps() == [1, 2, 2, 3, 3]


def test_release_stops_time_and_hold_lets_one_instant_pass(world: World) -> None:
    open_at_two(world)
    count, waiting = len(world.record.commands), world.rig.now
    world.controller.release()
    world.rig.hold_epoch(2)
    world.settle()
    assert len(world.record.commands) == count
    world.controller.hold()
    assert world.record.commands[-1] == (waiting, [world.position, 0.0])
    world.settle()
    assert len(world.record.commands) == count + 1


def test_release_forgets_the_safety_actions_that_were_to_come(world: World) -> None:
    world.rig.hold_epoch(1)
    world.rig.hold_epoch(2)
    world.controller.release()
    world.settle()
    assert world.record.commands == []
    world.controller.hold()
    world.settle()
    assert world.stamps() == [1]


def test_time_that_goes_back_is_a_world_that_began_anew(world: World) -> None:
    open_at_two(world)
    world.rig.now, world.position = PERIOD, -0.5
    world.show()
    assert world.record.gates[-1].reason.startswith("time:")
    world.rig.hold_epoch(2)
    world.settle()
    world.rig.run_epoch(2)
    world.rig.plan(-0.5)
    assert world.gate.open
