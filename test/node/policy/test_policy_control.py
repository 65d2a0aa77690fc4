# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The policy's side of the gate's protocol, without topics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flashrt_ros.node.interfaces import msg
from flashrt_ros.node.policy_control import PolicyControl
from flashrt_ros.node.stamps import from_nanoseconds


class Wire:
    """A node whose topics end here."""

    def __init__(self) -> None:
        self.states: list[msg.PolicyState] = []
        self.closed: list[str] = []
        self.lost: list[str] = []
        self.errors: list[str] = []
        self.callbacks: dict[str, Any] = {}
        clock = SimpleNamespace(now=lambda: SimpleNamespace(to_msg=lambda: msg.PolicyState().stamp))
        node = SimpleNamespace(
            create_publisher=lambda kind, topic, profile: SimpleNamespace(publish=self.states.append),
            create_subscription=lambda kind, topic, callback, profile: self.callbacks.update({topic: callback}),
            get_clock=lambda: clock,
            get_logger=lambda: SimpleNamespace(error=self.errors.append),
        )
        bridge = SimpleNamespace(resolve=lambda future: future.set_result(None))
        self.control = PolicyControl(node, bridge, self.closed.append, self.lost.append)  # type: ignore[arg-type]

    def gate(self, epoch: int, reason: str = "held", is_open: bool = False, closed_at: int = 0) -> None:
        closed = from_nanoseconds(closed_at)
        self.callbacks["command/gate"](msg.Gate(epoch=epoch, open=is_open, reason=reason, closed_at=closed))

    def is_closed(self) -> bool:
        """Whether a verb would go on."""
        try:
            self.control.closed(1.0).send(None)
        except StopIteration:
            return True
        except AttributeError:  # it would have waited, and there is nothing here to wait with
            return False
        return False


@pytest.fixture
def wire() -> Wire:
    """A node that has heard of a gate at epoch 41, and runs at epoch 42."""
    made = Wire()
    made.gate(41)
    made.control.run(step_limit=5)
    return made


def test_the_first_epoch_is_one_above_the_gate_s_and_nothing_is_said_before() -> None:
    wire = Wire()
    wire.control.hold("no goal yet")
    assert wire.states == []
    wire.gate(41)
    assert [(state.epoch, state.state, state.reason) for state in wire.states] == [(42, 0, "no goal yet")]
    assert not wire.control.spent


def test_running_spends_the_epoch(wire: Wire) -> None:
    assert (wire.states[-1].epoch, wire.states[-1].state, wire.states[-1].step_limit) == (42, 1, 5)
    with pytest.raises(ValueError, match="42"):
        wire.control.run(step_limit=5)
    wire.control.hold("restored")
    assert (wire.states[-1].epoch, wire.states[-1].state, wire.states[-1].step_limit) == (43, 0, 0)
    wire.control.run(step_limit=0)


@pytest.mark.parametrize("reason", ["held: no goal yet", "waiting: for the first chunk", "joints: none yet"])
def test_a_gate_that_is_going_to_open_ends_nothing(wire: Wire, reason: str) -> None:
    wire.gate(42, reason)
    assert wire.closed == []


@pytest.mark.parametrize("reason", ["joints: too old", "disabled", "step_limit", "start_tolerance: far"])
def test_a_gate_that_was_open_and_closes_ends_the_run(wire: Wire, reason: str) -> None:
    wire.gate(42, "", is_open=True)
    wire.gate(42, reason)
    assert wire.closed == [reason]


@pytest.mark.parametrize("opened", [True, False])
def test_a_gate_that_is_held_behind_having_been_armed_ends_the_run(wire: Wire, opened: bool) -> None:
    """Somebody else has asked for it in this policy_node's name."""
    wire.gate(42, "waiting: for the first chunk")
    if opened:
        wire.gate(42, "", is_open=True)
    wire.gate(42, "held: forged")
    assert wire.closed == ["held: forged"]
    wire.control.opened = True
    assert wire.is_closed()


def test_a_gate_that_closed_again_behind_the_run_ends_it_though_it_was_not_heard_to_be_armed(wire: Wire) -> None:
    wire.control.hold("starting")
    wire.gate(43, "held: starting", closed_at=5)
    wire.control.run(step_limit=0)
    wire.gate(43, "held: starting", closed_at=5)
    assert wire.closed == []
    wire.gate(43, "held: forged", closed_at=6)
    assert wire.closed == ["held: forged"]


def test_an_older_held_is_no_end_where_a_tick_has_told_of_the_open_gate_first(wire: Wire) -> None:
    wire.gate(42, "held: starting")
    wire.control.opened = True
    assert wire.closed == []
    assert not wire.is_closed()


@pytest.mark.parametrize("epoch", [2**64 - 1, 2**33])
def test_a_gate_of_an_implausible_epoch_is_ignored_and_told(wire: Wire, epoch: int) -> None:
    for heard in (wire, Wire()):
        before = heard.control.epoch
        heard.gate(epoch)
        assert (heard.lost, heard.control.epoch) == ([], before)
        assert str(epoch) in heard.errors[0]
        heard.control.hold("goes on")
        assert heard.control.epoch == before + 1


def test_gates_of_older_epochs_mean_nothing(wire: Wire) -> None:
    wire.gate(41, "disabled")
    wire.gate(0, "inactive")
    assert (wire.closed, wire.control.epoch) == ([], 42)
    wire.control.hold("restored")
    wire.gate(42, "held")
    assert not wire.is_closed()
    wire.gate(43, "held")
    assert wire.is_closed()


def test_behind_a_run_only_a_reason_to_close_counts_as_closed(wire: Wire) -> None:
    wire.gate(42, "waiting: for the first chunk")
    wire.control.opened = True
    wire.control.rest("step_limit")
    assert not wire.is_closed()
    wire.gate(42, "step_limit")
    assert wire.is_closed()


def test_another_policy_node_is_given_way_to_without_a_race_of_epochs(wire: Wire) -> None:
    said = len(wire.states)
    wire.gate(50, "held")
    assert len(wire.lost) == 1
    assert (wire.control.epoch, wire.control.running, wire.control.spent) == (50, False, True)
    assert len(wire.states) == said
    wire.control.hold("starting")
    assert wire.states[-1].epoch == 51
