# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The recorder, told message by message, since topics are in no order among one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState

from flashrt_interfaces import msg
from flashrt_ros.demo.recorder import Recorder
from flashrt_ros.node.stamps import from_nanoseconds

PERIOD = 100_000_000  # ns


class Wire:
    """Stands in for the node: delivers to the recorder's subscriptions."""

    def __init__(self) -> None:
        self._callbacks: dict[str, Callable[[Any], None]] = {}
        self.recorder = Recorder(self, PERIOD)  # type: ignore[arg-type]

    def create_subscription(self, kind: object, topic: str, callback: Callable[[Any], None], qos: object) -> None:
        self._callbacks[topic] = callback

    def clock(self, tick: int) -> None:
        self._callbacks["/clock"](Clock(clock=from_nanoseconds(tick * PERIOD)))

    def command(self, tick: int, position: float = 0.0) -> None:
        message = JointState(name=["elbow"], position=[position])
        message.header.stamp = from_nanoseconds(tick * PERIOD)
        self._callbacks["joint_command"](message)

    def chunk(self, number: int) -> None:
        self._callbacks["policy/action_chunk"](msg.ActionChunk(chunk_id=number, data=[float(number)]))

    def row(self, tick: int, steps: int, chunk: int = 1) -> None:
        stamp = from_nanoseconds(tick * PERIOD)
        self._callbacks["command/executed"](msg.Executed(stamp=stamp, active=True, steps=steps, chunk_id=chunk))

    def gate(self, epoch: int, *, is_open: bool) -> None:
        self._callbacks["command/gate"](msg.Gate(epoch=epoch, open=is_open))

    def policy(self, epoch: int, *, running: bool) -> None:
        self._callbacks["policy/state"](msg.PolicyState(epoch=epoch, state=int(running)))


@pytest.fixture
def wire() -> Wire:
    """A leg of two rows at ticks 5 and 6 in epoch 2, marked at tick 4, which held the arm; all of it heard."""
    wire = Wire()
    wire.clock(4)
    wire.policy(1, running=False)
    wire.gate(1, is_open=False)
    wire.recorder.mark()
    wire.gate(2, is_open=False)
    wire.policy(2, running=True)
    wire.command(4)
    wire.chunk(1)
    wire.gate(2, is_open=True)
    for tick in (5, 6):
        wire.clock(tick)
        wire.row(tick, steps=tick - 4)
        wire.command(tick, position=tick)
    wire.gate(2, is_open=False)
    wire.clock(7)
    wire.command(7)
    wire.clock(8)
    wire.policy(2, running=False)
    return wire


def test_a_whole_leg_is_settled(wire: Wire) -> None:
    assert wire.recorder.unsettled() == wire.recorder.unheard(2) == wire.recorder.incomplete() == ""
    leg = wire.recorder.leg()
    assert (len(leg.chunks), len(leg.commands)) == (1, 4)
    assert len(set(leg.commands)) == 3  # the arm was held alike before and behind the rows


def test_the_last_tick_is_waited_for(wire: Wire) -> None:
    wire.recorder.mark()
    wire.policy(3, running=False)
    wire.gate(3, is_open=False)
    assert wire.recorder.unsettled() == "/clock is at 0.800 s, it will stand still at 0.900 s"
    wire.command(8)
    wire.clock(9)
    assert wire.recorder.unsettled() == ""


def test_a_world_that_was_loaded_is_waited_for(wire: Wire) -> None:
    wire.recorder.note_world_change()
    assert "it will stand still at 0.900 s" in wire.recorder.unsettled()


def test_a_verb_is_not_over_before_its_epoch(wire: Wire) -> None:
    wire.recorder.mark()
    assert "from 3 on the verb has been accepted" in wire.recorder.unsettled()
    wire.policy(3, running=False)
    assert wire.recorder.unsettled() == "the gate is at epoch 2, the policy at 3"


def test_a_run_is_not_over_before_its_last_row(wire: Wire) -> None:
    assert wire.recorder.unheard(3) == "command/executed has not told of action 3 yet"


def test_a_chunk_that_ran_is_waited_for(wire: Wire) -> None:
    wire.row(6, steps=2, chunk=2)
    assert wire.recorder.unheard(2) == "chunk 2 ran but has not been heard"
    wire.chunk(2)
    assert wire.recorder.unheard(2) == ""


def test_a_chunk_that_did_not_run_is_not_of_the_leg(wire: Wire) -> None:
    wire.chunk(2)
    assert len(wire.recorder.leg().chunks) == 1


def test_a_repeated_command_counts_once_and_one_of_before_not_at_all(wire: Wire) -> None:
    wire.command(6, position=6)
    wire.command(3)
    assert wire.recorder.incomplete() == ""


def test_a_missing_command_is_waited_for(wire: Wire) -> None:
    wire.clock(9)
    assert wire.recorder.incomplete() == "4 of 5 joint commands have been heard"
