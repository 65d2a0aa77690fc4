# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The timing of lockstep: when it is observed, and which row of which chunk each tick runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flashrt_ros.demo.closed_loop import ClosedLoop
from flashrt_ros.demo.nodes import contract_file
from flashrt_ros.demo.render import Renderer
from flashrt_ros.demo.task import LIT_TICKS, Kind, Task, draw_scenario
from flashrt_ros.demo.world import World
from flashrt_ros.policy.contract import load_contract
from flashrt_ros.policy.processing import Observation

STEP = 0.01  # rad a tick


@pytest.mark.parametrize(("threshold", "apply_after", "cadence"), [(7, 2, 8), (4, 1, 11)])
def test_chunks_are_asked_for_and_applied_as_by_command_node(
    threshold: int, apply_after: int, cadence: int, dark: Renderer
) -> None:
    task = Task(World(), draw_scenario(Kind.NAMED, 0), 0)
    action = replace(load_contract(contract_file()).action, threshold=threshold)
    observed: list[int] = []

    def plan(observation: Observation) -> np.ndarray:
        observed.append(observation.stamp // action.period)
        rows = np.tile(task.world.positions, (16, 1))
        rows[:, 0] = 0.001 * len(observed) + STEP * (observed[-1] + np.arange(16))
        return rows

    loop = ClosedLoop(task, dark, plan, action, apply_after)
    for tick in range(3 * cadence):
        loop.tick()
        due = max(number for number, seen in enumerate(observed) if seen + apply_after * (number > 0) <= tick)
        assert task.world.targets[0] == pytest.approx(0.001 * (due + 1) + STEP * tick) or tick == 0
    assert observed == [0, cadence, 2 * cadence]


def test_the_demo_contract_lets_no_light_be_missed() -> None:
    action = load_contract(contract_file()).action
    assert 16 - 1 - action.threshold <= LIT_TICKS - 2
