# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the benchmark of the demo concludes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashrt_ros.demo.evaluate import Played, summarise
from flashrt_ros.demo.task import Kind
from flashrt_ros.tools.bench.demo_best import Boundary, success_of_best
from flashrt_ros.tools.bench.demo_figures import Figures, verdicts
from flashrt_ros.tools.bench.demo_memory import CONDITIONS, ORIGINAL, RESTORED, ROWS_ONLY, UNSEEN, Case
from flashrt_ros.tools.bench.demo_ros import Pace


def cases(**successes: int) -> list[Case]:
    """A hundred cases; those not named succeed always."""
    return [
        Case(
            seed, {name: seed < successes.get(name, 100) for name in CONDITIONS}, dict.fromkeys(CONDITIONS, False), True
        )
        for seed in range(100)
    ]


def played(solved: int) -> dict:
    return summarise(
        [
            Played(kind.value, seed, "success" if seed < solved else "wrong button", 30)
            for kind in Kind
            for seed in range(100)
        ]
    )


@pytest.fixture
def figures() -> Figures:
    return Figures(
        policy=played(96),
        expert=played(100),
        real_time=played(96),
        pace=Pace(1000, 9.99, 0.11, 0.15),
        memories=cases(**{ROWS_ONLY: 40, UNSEEN: 25}),
        resets=[[], []],
        best={RESTORED: [(1, 0.9), (2, 0.95)]},
    )


def failed(figures: Figures) -> str:
    return "; ".join(text for text, holds in verdicts(figures) if not holds)


def test_all_holds(figures: Figures) -> None:
    assert failed(figures) == ""


def test_each_failure_is_named(figures: Figures) -> None:
    assert "named: 94.0%" in failed(replace(figures, policy=played(94)))
    assert "lit: 89.0%" in failed(replace(figures, policy=played(89)))
    assert "9.70 ticks" in failed(replace(figures, pace=Pace(1000, 9.7, 0.2, 0.3)))
    others = figures.memories[1:]
    one = replace(figures.memories[0], same=False)
    assert "99 of 100" in failed(replace(figures, memories=[one, *others]))
    assert "falls from 100.0% to 97.0%" in failed(replace(figures, memories=cases(**{ROWS_ONLY: 97, UNSEEN: 25})))
    assert "never seen" in failed(replace(figures, memories=cases(**{ROWS_ONLY: 40, UNSEEN: 50})))
    assert "kv differs" in failed(replace(figures, resets=[[], ["kv differs"]]))
    assert "best of more" in failed(replace(figures, best={ORIGINAL: [(1, 0.9), (2, 0.8)]}))


def test_best_of_n_is_the_mean_over_all_choices() -> None:
    boundaries = [Boundary(0, RESTORED, (True, False, False, False)), Boundary(1, RESTORED, (False,) * 4)]
    assert success_of_best(boundaries, 1) == 0.125
    assert success_of_best(boundaries, 2) == 0.25
    assert success_of_best(boundaries, 4) == 0.5
