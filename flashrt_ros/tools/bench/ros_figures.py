# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the ROS benchmark measured, and what it must show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_SERVICE_BAR = 20.0  # ms
_RESTORE_MARGIN = 10.0  # ms
_LATENESS_FACTOR, _LATENESS_MARGIN = 2.0, 0.5  # ms
_FRAMES_LACKING = 1.0  # percent
_CPU_BAR = 25.0  # percent of a core
_EARLY = 20
"""Part of a period by which a tick may begin before the typical one and still count as the same."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of times, in seconds."""

    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, times: Sequence[float]) -> Spread:
        """Return those of some times."""
        p50, p99, most = np.percentile(np.array(times), (50, 99, 100))
        return cls(float(p50), float(p99), float(most))


@dataclass(frozen=True, slots=True)
class Figures:
    """Times in seconds.

    Attributes:
        device: the policy's backend, and what it runs on.
        period: between two control ticks.
        control: lateness of command_node's ticks.
        sleeper: lateness of a process that only sleeps.
        lost_alone: control ticks lost where the sleeper lost none.
        snapshot: round trip of each call; so are `listing` and `restore`.
        sample: round trip of each call of sample_actions; empty: nobody called it.
        closing: from each restore's call to the closing of the gate.
        stage: the longest of the policy's stages; a verb waits for the one in progress.
        inferences: a second.
        lacking: part of the published frames that policy_node did not get.
        policy_cpu: processor time of policy_node without the thread that computes, of one core.
        command_cpu: processor time of command_node, of one core.
    """

    device: str
    period: float
    control: Spread
    sleeper: Spread
    lost_alone: int
    snapshot: Sequence[float]
    listing: Sequence[float]
    restore: Sequence[float]
    sample: Sequence[float]
    closing: Sequence[float]
    stage: float
    inferences: float
    lacking: float
    policy_cpu: float
    command_cpu: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the result; `how` says where its bar comes from."""

    what: str
    value: float
    bar: float
    how: str

    @property
    def holds(self) -> bool:
        """Whether the value is within its bar."""
        return self.value <= self.bar


def verdicts(figures: Figures) -> list[Verdict]:
    """Compare each figure with its bar; some bars are those of the whole load, with a client that samples."""
    sleeper, stage = 1e3 * figures.sleeper.p99, 1e3 * figures.stage
    found = [
        Verdict(
            "lateness of control ticks, p99, ms",
            1e3 * figures.control.p99,
            _LATENESS_FACTOR * sleeper + _LATENESS_MARGIN,
            f"{_LATENESS_FACTOR:g} x {sleeper:.2f} of the sleeper + {_LATENESS_MARGIN:g}",
        ),
        Verdict("control ticks lost that the sleeper kept", figures.lost_alone, 0, ""),
        Verdict("snapshot, p99, ms", _p99(figures.snapshot), _SERVICE_BAR, f"{len(figures.snapshot)} calls"),
        Verdict("list_capsules, p99, ms", _p99(figures.listing), _SERVICE_BAR, f"{len(figures.listing)} calls"),
        Verdict(
            f"restore, p99 of {len(figures.restore)}, ms",
            _p99(figures.restore),
            stage + _RESTORE_MARGIN,
            f"the longest stage, {stage:.1f}, + {_RESTORE_MARGIN:g}",
        ),
        Verdict(
            "from calling restore to the closed gate, largest, ms",
            1e3 * max(figures.closing),
            1e3 * figures.period,
            "one control period",
        ),
    ]
    return found + _of_the_whole_load(figures) if figures.sample else found


def _of_the_whole_load(figures: Figures) -> list[Verdict]:
    return [
        Verdict(
            "lateness of control ticks, p99, ms", 1e3 * figures.control.p99, 500.0 * figures.period, "half a period"
        ),
        Verdict("frames that were not delivered, %", 100.0 * figures.lacking, _FRAMES_LACKING, "of those published"),
        Verdict(
            "processor time outside inference, % of a core",
            100.0 * (figures.policy_cpu + figures.command_cpu),
            _CPU_BAR,
            f"policy_node {100.0 * figures.policy_cpu:.1f}, command_node {100.0 * figures.command_cpu:.1f}",
        ),
    ]


def lost_alone(control: Sequence[int], sleeper: Sequence[int], period: int) -> int:
    """Count the ticks that one lost when the other lost none.

    Args:
        control: when its ticks began, ns.
        sleeper: likewise, of the same clock and over at least the same time.
        period: between two ticks, ns.
    """
    excused = _lost(sleeper, period)
    return sum(all(abs(tick - other) > period for other in excused) for tick in _lost(control, period))


def _lost(ticks: Sequence[int], period: int) -> list[int]:
    """Return when ticks were due that did not begin before the next one was due.

    A tick never begins early, so that what most of them have in common tells when they are due.
    """
    start, half = ticks[0], period // 2
    typical = int(np.median([(tick - start + half) % period - half for tick in ticks]))
    due = start + typical - period // _EARLY
    slots = {(tick - due) // period for tick in ticks}
    return [due + slot * period for slot in range(min(slots), max(slots)) if slot not in slots]


def _p99(times: Sequence[float]) -> float:
    return 1e3 * Spread.of(times).p99
