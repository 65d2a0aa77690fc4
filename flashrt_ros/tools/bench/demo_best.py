# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Best of n in simulation: from one boundary, memory and world restored, n forks with other noise are tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from flashrt_ros.demo.rehearsal import LOOK_TICKS, Rehearsal
from flashrt_ros.demo.task import Disturbance, Kind, Outcome, draw_scenario

PUSHED = "pushed aside"
UNSEEN = "the light never seen"
SITUATIONS = (PUSHED, UNSEEN)
_PUSH = Disturbance(24, 22, (0.6, -0.4, 0.2, 0.0, 0.0, 0.0))
"""Away from a press that has begun, to where one try from anew may fail."""
_LIMIT = 70  # ticks of a try


@dataclass(frozen=True, slots=True)
class Boundary:
    """What came of the forks of one boundary: whether each succeeded, in the order of their seeds."""

    seed: int
    situation: str
    successes: tuple[bool, ...]


def try_forks(rehearsal: Rehearsal, seed: int, situation: str, forks: int) -> Boundary:
    """Try forks of one boundary of "press the button that lit up", in one of SITUATIONS."""
    rehearsal.stage(draw_scenario(Kind.LIT, seed), seed, [_PUSH])
    rehearsal.begin(seed)
    start = rehearsal.memory()
    rehearsal.play(LOOK_TICKS)
    memory = rehearsal.memory() if situation == PUSHED else start
    if situation == PUSHED:
        rehearsal.play(_PUSH.tick + _PUSH.ticks - LOOK_TICKS)
    world = rehearsal.task.save()

    def fork(number: int) -> bool:
        rehearsal.task.load(world)
        rehearsal.recall(memory, retry=number)
        return rehearsal.play(_LIMIT).outcome is Outcome.SUCCESS

    return Boundary(seed, situation, tuple(fork(number) for number in range(1, forks + 1)))


def success_of_best(boundaries: Sequence[Boundary], n: int) -> float:
    """Return how often the best of n forks succeeds: the mean over all choices of n among those that were tried."""

    def one(successes: Sequence[bool]) -> float:
        failed = len(successes) - sum(successes)
        return 1.0 - comb(failed, n) / comb(len(successes), n)

    return sum(one(boundary.successes) for boundary in boundaries) / len(boundaries)
