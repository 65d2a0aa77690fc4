# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the benchmark of the demo measured, and what it must show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flashrt_ros.demo.evaluate import wilson
from flashrt_ros.demo.task import Kind
from flashrt_ros.tools.bench.demo_memory import ORIGINAL, ROWS_ONLY, UNSEEN, Case
from flashrt_ros.tools.bench.demo_ros import Pace

BARS = {Kind.NAMED: 0.95, Kind.LIT: 0.90}
CHANCE = 0.25
RATE = 10.0
_RATE_TOLERANCE = 0.01

Summary = dict[str, dict[str, Any]]
"""See flashrt_ros.demo.evaluate.summarise."""


@dataclass(frozen=True, slots=True)
class Figures:
    """All results.

    Attributes:
        policy: over ROS in lockstep.
        expert: the scripted one.
        real_time: the policy over ROS in real time.
        pace: of those.
        memories: one a seed.
        resets: how an episode after a reset differed from one after a cold start, one list a seed.
        best: by situation, success of the best of n forks: (n, rate).
    """

    policy: Summary
    expert: Summary
    real_time: Summary
    pace: Pace
    memories: list[Case]
    resets: list[list[str]]
    best: dict[str, list[tuple[int, float]]]

    def rate(self, condition: str) -> float:
        """Success under one of demo_memory.CONDITIONS."""
        return sum(case.successes[condition] for case in self.memories) / len(self.memories)

    def interval(self, condition: str) -> tuple[float, float]:
        """Its bounds at 95 %."""
        return wilson(sum(case.successes[condition] for case in self.memories), len(self.memories))


def verdicts(figures: Figures) -> list[tuple[str, bool]]:
    """What must hold, and whether it does."""
    found = [
        (f"{kind}: {figures.policy[kind]['success']:.1%}, at least {bar:.0%}", figures.policy[kind]["success"] >= bar)
        for kind, bar in BARS.items()
    ]
    pace = figures.pace
    milliseconds = f"p99 {1e3 * pace.p99:.0f} ms, longest {1e3 * pace.longest:.0f} ms"
    found.append(
        (
            f"{pace.rate:.2f} ticks a second in real time, over {pace.ticks} ticks ({milliseconds})",
            pace.rate >= RATE * (1 - _RATE_TOLERANCE),
        )
    )
    same = sum(case.same for case in figures.memories)
    count = len(figures.memories)
    found.append((f"restored = original, action for action: {same} of {count} episodes", same == count))
    original, rows_only = figures.rate(ORIGINAL), figures.rate(ROWS_ONLY)
    separate = figures.interval(ROWS_ONLY)[1] < figures.interval(ORIGINAL)[0]
    found.append((f"with KV rows only, success falls from {original:.1%} to {rows_only:.1%}", separate))
    low, high = figures.interval(UNSEEN)
    text = f"with the light never seen: {low:.1%} to {high:.1%}; chance is {CHANCE:.0%}"
    found.append((text, low <= CHANCE <= high))
    troubles = [trouble for reset in figures.resets for trouble in reset]
    detail = "; ".join(troubles) or f"every state buffer and every action, {len(figures.resets)} episodes"
    found.append((f"a reset by capsule is a cold start: {detail}", not troubles))
    grows = all(points[0][1] <= points[-1][1] for points in figures.best.values())
    found.append(("the best of more forks succeeds as often or more", grows))
    return found
