# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Best of n in simulation: from one boundary, memory and world restored, n forks with other noise are tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from flashrt_ros.demo.rehearsal import LOOK_TICKS, Rehearsal, mix, other_seed
from flashrt_ros.demo.task import Disturbance, Kind, Outcome, draw_scenario
from flashrt_ros.tools.bench.demo_memory import look

RESTORED = "all restored"
ROWS_ONLY = "KV rows alone restored"
UNSEEN = "the light never seen"
SITUATIONS = (RESTORED, ROWS_ONLY, UNSEEN)
_PUSH = Disturbance(LOOK_TICKS, 20, (0.6, -0.4, 0.2, 0.0, 0.0, 0.0))
"""To where one try may fail even with all of the memory."""
_LIMIT = 70  # ticks of a try


@dataclass(frozen=True, slots=True)
class Boundary:
    """What came of the forks of one boundary: whether each succeeded, in the order of their seeds."""

    seed: int
    situation: str
    successes: tuple[bool, ...]


def try_forks(rehearsal: Rehearsal, seed: int, forks: int) -> list[Boundary]:
    """Try forks of "press the button that lit up", from the boundary after the light and a push, in all SITUATIONS."""
    scenario = draw_scenario(Kind.LIT, seed)
    other = other_seed(scenario, seed)
    foreign = look(rehearsal, draw_scenario(Kind.LIT, other), other)
    memory = look(rehearsal, scenario, seed, [_PUSH])
    while rehearsal.task.tick < _PUSH.tick + _PUSH.ticks:
        rehearsal.task.step(rehearsal.task.world.targets)
    world = rehearsal.task.save()
    rehearsal.begin(seed)
    memories = {RESTORED: memory, ROWS_ONLY: mix(rows_of=memory, rest_of=foreign), UNSEEN: rehearsal.memory()}

    def fork(situation: str, number: int) -> bool:
        rehearsal.task.load(world)
        rehearsal.recall(memories[situation], retry=number)
        return rehearsal.play(_LIMIT).outcome is Outcome.SUCCESS

    return [
        Boundary(seed, situation, tuple(fork(situation, number) for number in range(1, forks + 1)))
        for situation in SITUATIONS
    ]


def success_of_best(boundaries: Sequence[Boundary], n: int) -> float:
    """Return how often the best of n forks succeeds: the mean over all choices of n among those that were tried."""

    def one(successes: Sequence[bool]) -> float:
        failed = len(successes) - sum(successes)
        return 1.0 - comb(failed, n) / comb(len(successes), n)

    return sum(one(boundary.successes) for boundary in boundaries) / len(boundaries)
