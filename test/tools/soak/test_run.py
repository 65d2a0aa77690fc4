# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the soak takes for a failure."""

from __future__ import annotations

import itertools
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flashrt_interfaces")

from sensor_msgs.msg import JointState

from flashrt_ros.demo.nodes import contract_file
from flashrt_ros.node.interfaces import msg
from flashrt_ros.policy.contract import load_contract
from flashrt_ros.tools.soak import run
from flashrt_ros.tools.soak.command import summary
from flashrt_ros.tools.soak.faults import FAULTS, Expected
from flashrt_ros.tools.soak.rig import StuckError
from flashrt_ros.tools.soak.run import Outcome, Tally, soak
from flashrt_ros.tools.soak.watch import Watch

CONTRACT = load_contract(contract_file())
NAME = "command_node is stopped"


class Rig:
    """An arm that moves and, once it was told to hold, is silent; `on_spin` is called each time somebody waits."""

    def __init__(self) -> None:
        self.contract = CONTRACT
        self.link = SimpleNamespace(stopped=set())
        self.watch = Watch(SimpleNamespace(create_subscription=lambda *_: None), CONTRACT)  # type: ignore[arg-type]
        self.watch.gate.open = True
        self.on_spin: Callable[[], object] = lambda: None
        self.on_continue: Callable[[], object] = lambda: None
        self.moves_again = True
        self.bytes = {"command": 100, "policy": 100}

    def until(self, condition: Callable[[], object], patience: float, what: str) -> float:
        deadline = time.monotonic() + patience
        while not condition():
            self.on_spin()
            if time.monotonic() > deadline:
                raise StuckError(what)
        return 0.0

    def spin(self, seconds: float) -> None:
        self.on_spin()
        self.watch.moved_at = time.monotonic()

    def move(self) -> float:
        if not self.moves_again:
            raise StuckError("no goal moves the arm")
        self.watch.gate.open, self.watch.moved_at = True, time.monotonic()
        return 0.0

    def memory(self) -> dict[str, int]:
        return dict(self.bytes)

    def signal(self, node: str, number: signal.Signals) -> None:
        if number == signal.SIGCONT:
            self.on_continue()

    def command(self, *positions: float) -> None:
        self.watch._on_command(JointState(name=list(CONTRACT.action.joints), position=list(positions)))

    def measure(self, *positions: float) -> None:
        self.watch._on_joints(JointState(name=list(CONTRACT.action.joints), position=list(positions)))


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    rig = Rig()
    monkeypatch.setattr(run, "_CALM", (0.0, 0.0))
    monkeypatch.setattr(run, "_RESUME", 0.05)
    return rig


def injected(rig: Rig, monkeypatch: pytest.MonkeyPatch, expected: Expected, seconds: float = 0.01) -> Outcome:
    """The outcome of a soak whose faults expect this."""

    @contextmanager
    def fault(rig: Any, chance: random.Random) -> Iterator[Expected]:
        for _ in range(2):
            rig.command(*[0.1] * 6)
        yield replace(expected, since=time.monotonic())

    monkeypatch.setattr(run, "FAULTS", dict.fromkeys(FAULTS, fault))
    return soak(rig, seconds, 0, 0.0, lambda text: None)  # type: ignore[arg-type]


HELD = Expected("a held arm", 0.0, lambda: True)


def test_a_held_arm_that_moves_again_holds(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = injected(rig, monkeypatch, HELD)
    assert outcome.holds, summary(outcome)
    assert sum(tally.count for tally in outcome.tallies.values()) == 1


def test_a_safety_action_that_comes_too_late_fails(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = injected(rig, monkeypatch, replace(HELD, bound=0.01, holds=lambda: False))
    assert not outcome.holds
    assert any("a held arm, within 0.01 s" in line for line in summary(outcome))


def test_a_command_behind_the_safety_action_fails(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    positions = itertools.cycle((0.1, 0.11))
    rig.on_spin = lambda: rig.command(*[next(positions)] * 6)
    outcome = injected(rig, monkeypatch, HELD)
    assert not outcome.holds
    assert any("commands came while the arm had to be held" in line for line in summary(outcome))


def test_a_hold_that_is_said_again_and_again_fails(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.on_spin = lambda: [rig.command(*[0.1] * 6) for _ in range(2)]
    assert any("2 commands came" in line for line in summary(injected(rig, monkeypatch, HELD)))


def test_a_hold_that_is_said_once_more_holds(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.on_spin = lambda: rig.command(*[0.1] * 6)
    assert injected(rig, monkeypatch, HELD).holds


@pytest.mark.parametrize(
    ("reason", "holds"),
    [
        ("", False),
        ("joints: none", False),
        ("time: went back by 1.000 s", False),
        ("time: no tick for 0.587 s", True),
        ("time: stopped for 1.000 s", True),
    ],
)
def test_a_silence_without_a_hold_fails_unless_command_node_stood_still(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, reason: str, holds: bool
) -> None:
    def stop() -> bool:
        rig.watch.gate.open, rig.watch.gate.reason = not reason, reason
        rig.command(*[0.15] * 6)
        return True

    outcome = injected(rig, monkeypatch, replace(HELD, holds=stop))
    assert outcome.holds is holds
    assert any("was no hold" in line for line in summary(outcome)) is not holds


def test_a_pause_that_has_closed_the_gate_comes_before_what_else_would_close_it(rig: Rig) -> None:
    with FAULTS["joint states stop"](rig, random.Random(0)) as expected:  # type: ignore[arg-type]
        assert not expected.holds()
        rig.watch.gate.open, rig.watch.gate.reason = False, "time: no tick for 0.587 s"
        assert expected.holds()
        rig.watch.gate.reason = "held"
        assert not expected.holds()


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        ([], ""),
        ([0.2], ""),
        ([0.2, 0.2], "2 commands came after the stop"),
        ([0.11], "an action ran that was planned before the stop"),
        ([0.1], "an action ran that was planned before the stop"),
    ],
)
def test_after_a_stop_of_command_node_one_hold_may_come_where_the_arm_is(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, commands: list[float], said: str
) -> None:
    def go_on() -> None:
        rig.watch.gate.open, rig.watch.gate.reason = False, "time: stopped"
        for position in commands:
            rig.command(*[position] * 6)

    rig.command(*[0.1] * 6)
    rig.measure(*[0.2] * 6)
    rig.on_continue = go_on
    monkeypatch.setattr(run, "FAULTS", {NAME: FAULTS[NAME]})
    outcome = soak(rig, 0.01, 0, 0.0, lambda text: None)  # type: ignore[arg-type]
    assert outcome.holds is (not said)
    assert said in "".join(outcome.tallies[NAME].failures)


def test_an_arm_that_does_not_move_again_ends_the_soak(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.moves_again = False
    rig.watch.moved_at = 0.0
    outcome = injected(rig, monkeypatch, replace(HELD, holds=lambda: setattr(rig.watch.gate, "open", False) is None))
    assert not outcome.holds
    assert "ended early: no goal moves the arm" in summary(outcome)


@pytest.mark.parametrize(("after", "holds"), [(104, True), (106, False)])
def test_memory_may_grow_by_5_percent(after: int, holds: bool) -> None:
    tallies = {name: Tally() for name in FAULTS}
    tallies["a camera stops"].count = 1
    outcome = Outcome(tallies, [], {"policy": (100, after)})
    assert outcome.holds is holds
    assert ("MORE THAN" in summary(outcome)[0]) is not holds


def test_a_soak_without_a_fault_shows_nothing() -> None:
    assert not Outcome({name: Tally() for name in FAULTS}, [], {"policy": (100, 100)}).holds


def test_the_same_seed_gives_the_same_faults_and_each_kind_comes_as_often() -> None:
    def names(seed: int) -> list[str]:
        return list(islice(run._rounds(random.Random(seed)), 3 * len(FAULTS)))

    assert names(1) == names(1) != names(2)
    assert all(names(1).count(name) == 3 for name in FAULTS)


@pytest.mark.parametrize(
    ("position", "said"),
    [
        ([float("nan")] * 6, "commanded [nan"),
        ([3.0, *[0.1] * 5], "outside the limits"),
        ([0.1 + 0.251, *[0.1] * 5], "jumped"),
    ],
)
def test_commands_that_must_never_be_are_noted(rig: Rig, position: list[float], said: str) -> None:
    rig.command(*[0.1] * 6)
    rig.command(0.1 + 0.25, *[0.1] * 5)
    rig.command(*[0.1] * 6)
    assert rig.watch.violations == []
    rig.command(*position)
    (violation,) = rig.watch.violations
    assert said in violation


def test_an_epoch_that_goes_back_is_noted(rig: Rig) -> None:
    for epoch in (3, 3, 2):
        rig.watch._on_gate(msg.Gate(epoch=epoch))
    assert rig.watch.violations == ["the gate's epoch went back from 3 to 2"]


def test_an_arm_counts_as_held_only_when_its_last_command_is_repeated(rig: Rig) -> None:
    assert not rig.watch.held()
    rig.command(*[0.1] * 6)
    assert not rig.watch.held()
    rig.command(*np.full(6, 0.1))
    assert rig.watch.held()
    rig.command(0.11, *[0.1] * 5)
    assert not rig.watch.held()
