# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from flashrt_ros.policy.gate import REASONS, Gate


def make(*, enabled: bool = True, exact_allowed: bool = False) -> Gate:
    gate = Gate(epoch=3, enabled=enabled, dry_run=False, exact_allowed=exact_allowed, now=0)
    gate.active = True
    return gate


def held(gate: Gate, epoch: int, now: int = 10) -> bool:
    return gate.adopt(epoch, running=False, step_limit=0, reason="restored", now=now)


def runs(gate: Gate, epoch: int, now: int = 20) -> bool:
    return gate.adopt(epoch, running=True, step_limit=7, reason="", now=now)


def opened() -> Gate:
    gate = make()
    held(gate, 4)
    runs(gate, 4)
    gate.pass_commands()
    return gate


def token(gate: Gate) -> str:
    name = gate.reason.partition(":")[0]
    assert name in REASONS
    return name


def test_running_arms_and_only_an_armed_gate_opens() -> None:
    gate = make()
    with pytest.raises(ValueError, match="not armed"):
        gate.pass_commands()
    assert held(gate, 4)
    assert (gate.armed, gate.open, gate.state.epoch, gate.closed_at) == (False, False, 4, 10)
    assert not runs(gate, 4)
    assert (gate.armed, gate.open, token(gate), gate.step_limit) == (True, False, "waiting", 7)
    gate.pass_commands()
    assert (gate.open, gate.reason) == (True, "")


def test_a_raised_epoch_closes_at_once_and_dates_the_closing() -> None:
    gate = opened()
    assert held(gate, 5, now=99)
    assert (gate.open, gate.armed, gate.closed_at, gate.reason) == (False, False, 99, "held: restored")


def test_held_in_the_same_epoch_closes_too() -> None:
    gate = opened()
    assert not held(gate, 4, now=99)
    assert (gate.open, gate.closed_at) == (False, 99)


def test_a_raised_epoch_that_runs_already_closes_before_it_arms() -> None:
    gate = opened()
    assert runs(gate, 5, now=99)
    assert (gate.open, gate.armed, gate.closed_at) == (False, True, 99)


def test_an_epoch_never_goes_back() -> None:
    gate = opened()
    with pytest.raises(ValueError, match="below"):
        runs(gate, 3)
    assert gate.epoch == 4


def test_an_epoch_arms_once_whatever_closed_it() -> None:
    gate = opened()
    gate.close("hold", 50)
    runs(gate, 4)  # the same state, published again
    assert not gate.armed
    held(gate, 4)
    runs(gate, 4)
    assert (gate.armed, token(gate)) == (False, "spent")
    held(gate, 5)
    runs(gate, 5)
    assert gate.armed


def test_a_state_that_is_published_again_changes_nothing() -> None:
    gate = opened()
    before = gate.state
    runs(gate, 4, now=99)
    assert gate.state == before
    gate.close("hold", 50)
    before = gate.state
    runs(gate, 4, now=99)
    assert gate.state == before
    held(gate, 5)
    before = gate.state
    held(gate, 5, now=99)
    assert gate.state == before


def test_a_policy_that_runs_already_when_this_node_starts_does_not_arm_it() -> None:
    gate = make()
    runs(gate, 4)
    assert (gate.armed, token(gate)) == (False, "spent")


@pytest.mark.parametrize(
    ("attribute", "value", "reason"),
    [("enabled", False, "disabled"), ("released", True, "released"), ("active", False, "inactive")],
)
def test_what_forbids_motion_spends_the_epoch(attribute: str, value: bool, reason: str) -> None:
    gate = make()
    held(gate, 4)
    setattr(gate, attribute, value)
    runs(gate, 4)
    assert (gate.armed, token(gate)) == (False, reason)
    setattr(gate, attribute, not value)
    runs(gate, 4)
    assert not gate.armed
    held(gate, 5)
    runs(gate, 5)
    assert gate.armed


def test_only_observations_after_the_closing_are_fresh() -> None:
    gate = opened()
    gate.close("hold", 50)
    assert not gate.fresh(50, exact=False)
    assert gate.fresh(51, exact=False)


def test_exact_is_exempt_only_where_it_is_allowed() -> None:
    assert not make().fresh(0, exact=True)
    assert make(exact_allowed=True).fresh(0, exact=True)
    assert not make(exact_allowed=True).fresh(0, exact=False)


def test_a_fault_is_remembered_until_the_next_epoch() -> None:
    gate = opened()
    assert gate.close("joints: stale", 50, fault=True)
    assert gate.fault
    held(gate, 5)
    assert not gate.fault
    gate.close("time: went back", 50, fault=True)
    runs(gate, 5)
    assert not gate.fault
