# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the shipped policy does from the boundary after the light, and after a reset."""

from __future__ import annotations

import pytest

from flashrt_ros.demo.evaluate import WEIGHTS
from flashrt_ros.demo.rehearsal import Rehearsal
from flashrt_ros.tools.bench.demo_best import RESTORED as ALL_RESTORED
from flashrt_ros.tools.bench.demo_best import SITUATIONS, success_of_best, try_forks
from flashrt_ros.tools.bench.demo_memory import (
    CONDITIONS,
    ORIGINAL,
    RESTORED,
    ROWS_ONLY,
    UNSEEN,
    reset_is_cold_start,
    try_memories,
)


@pytest.fixture(scope="module")
def rehearsal() -> Rehearsal:
    return Rehearsal(WEIGHTS, "drawn")


def test_with_all_restored_it_does_what_it_did_and_with_less_it_fails(rehearsal: Rehearsal) -> None:
    cases = [try_memories(rehearsal, seed) for seed in range(6)]
    assert all(case.same for case in cases)
    solved = {name: sum(case.successes[name] for case in cases) for name in CONDITIONS}
    assert solved[RESTORED] == solved[ORIGINAL] == len(cases)
    assert solved[ROWS_ONLY] <= len(cases) // 2
    assert solved[UNSEEN] <= len(cases) // 2


def test_a_reset_is_a_cold_start() -> None:
    assert reset_is_cold_start(WEIGHTS, "drawn", 3) == []


def test_forks_of_one_boundary_start_from_the_same_world(rehearsal: Rehearsal) -> None:
    boundaries = try_forks(rehearsal, 2, 2)
    assert [boundary.situation for boundary in boundaries] == list(SITUATIONS)
    assert all(len(boundary.successes) == 2 for boundary in boundaries)
    assert success_of_best([b for b in boundaries if b.situation == ALL_RESTORED], 2) == 1.0
