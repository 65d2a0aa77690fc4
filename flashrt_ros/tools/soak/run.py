# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Injects one fault after the other, and notes what became of each."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from flashrt_ros.tools.soak.faults import FAULTS, Expected
from flashrt_ros.tools.soak.rig import NODES, Rig, StuckError

MEMORY_GROWTH = 0.05
_FULL = 1.0 / 3.0
"""Part of the run after which all stores are full, and memory must grow no more."""

_CALM = (0.0, 1.2)  # s of motion before a fault
_DISTURBANCES = 20
_RESUME = 2.0  # s
_SILENCE = 3  # periods in which a held arm is commanded nothing
_HOLDS = 1
"""Commands that may come meanwhile: a held arm is told so again when the gate closes too."""

_ON_THE_WAY = 0.1  # s that a command may come behind the news of the closed gate

Progress = Callable[[str], None]


@dataclass(slots=True)
class Tally:
    """What became of the faults of one kind. Times in s, `failures` in words.

    `disturbed`: how often the arm had stopped by itself before the fault, and was made to move again.
    """

    count: int = 0
    safe: list[float] = field(default_factory=list)
    moved_again: list[float] = field(default_factory=list)
    disturbed: int = 0
    failures: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """What a soak has shown.

    Attributes:
        tallies: by the fault's name.
        violations: what must never be and was.
        memory: resident bytes of each node once its stores were full, and at the end.
        stuck: why it ended early; empty: it did not.
    """

    tallies: dict[str, Tally]
    violations: list[str]
    memory: dict[str, tuple[int, int]]
    stuck: str = ""

    def growth(self, node: str) -> float:
        """By what part a node's memory has grown."""
        before, after = self.memory[node]
        return after / before - 1.0

    @property
    def holds(self) -> bool:
        """Whether something was injected, and all went as it must."""
        if self.stuck or self.violations or any(tally.failures for tally in self.tallies.values()):
            return False
        injected = any(tally.count for tally in self.tallies.values())
        return injected and all(self.growth(node) <= MEMORY_GROWTH for node in self.memory)


def soak(rig: Rig, seconds: float, seed: int, slack: float, progress: Progress) -> Outcome:
    """Inject faults for some seconds, each kind as often as the others; `slack`: s by which a bound may be missed."""
    chance = random.Random(seed)
    outcome = Outcome({name: Tally() for name in FAULTS}, rig.watch.violations, {})
    began = time.monotonic()
    before: dict[str, int] = {}
    names = _rounds(chance)
    try:
        while time.monotonic() - began < seconds:
            name = next(names)
            progress(f"{time.monotonic() - began:.0f} s of {seconds:.0f}: {name}")
            _inject(rig, name, outcome.tallies[name], chance, slack)
            if not before and time.monotonic() - began > _FULL * seconds:
                before = rig.memory()
    except StuckError as error:
        outcome.stuck = str(error)
    after = rig.memory()
    outcome.memory = {node: (before.get(node, after[node]), after[node]) for node in NODES}
    return outcome


def _rounds(chance: random.Random) -> Iterator[str]:
    """All faults in one order after the other."""
    while True:
        yield from chance.sample(list(FAULTS), len(FAULTS))


def _inject(rig: Rig, name: str, tally: Tally, chance: random.Random, slack: float) -> None:
    """Inject one fault, check what becomes of it, and have the arm move again.

    Raises:
        StuckError: it does not move again.
    """
    _let_it_move(rig, chance, tally)
    tally.count += 1
    try:
        with FAULTS[name](rig, chance) as expected:
            _check(rig, expected, tally, slack)
    except StuckError as error:
        tally.failures.append(f"{error}; the gate says '{rig.watch.gate.reason}'")
    tally.moved_again.append(_recover(rig))


def _let_it_move(rig: Rig, chance: random.Random, tally: Tally) -> None:
    """Have the arm move for a while; what stops it meanwhile is none of the fault's."""
    while True:
        rig.spin(chance.uniform(*_CALM))
        if rig.watch.gate.open and time.monotonic() - rig.watch.moved_at < 2 * rig.contract.action.period * 1e-9:
            return
        tally.disturbed += 1
        if tally.disturbed > _DISTURBANCES:
            raise StuckError(f"the arm stops by itself: {rig.watch.gate.reason}")
        rig.move()


def _check(rig: Rig, expected: Expected, tally: Tally, slack: float) -> None:
    """Wait for the safety action, and see that it is the last command.

    Raises:
        StuckError: it was not done in time, or something was commanded behind it.
    """
    late = expected.since + expected.bound + slack - time.monotonic()
    rig.until(expected.holds, max(late, 0.0), f"{expected.what}, within {expected.bound:.2f} s of the fault")
    tally.safe.append(time.monotonic() - expected.since)
    if not expected.stops:
        return
    rig.spin(_ON_THE_WAY)
    count, changes = rig.watch.count, rig.watch.changes
    rig.spin(_SILENCE * rig.contract.action.period * 1e-9)
    if rig.watch.changes > changes or rig.watch.count > count + _HOLDS:
        raise StuckError(f"{rig.watch.count - count} commands came while the arm had to be held")
    if not expected.anywhere and not rig.watch.paused and not rig.watch.held():
        raise StuckError("the last command before the silence was no hold")


def _recover(rig: Rig) -> float:
    """Have the arm move again: by itself where the goal goes on, else with a new one. Returns the seconds."""
    ended = time.monotonic()
    if rig.watch.gate.open:
        with contextlib.suppress(StuckError):
            rig.until(lambda: rig.watch.moves(ended) or not rig.watch.gate.open, _RESUME, "the goal to go on")
    if not rig.watch.moves(ended):
        rig.move()
    return time.monotonic() - ended
