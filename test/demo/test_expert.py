# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from flashrt_ros.demo.closed_loop import ClosedLoop
from flashrt_ros.demo.expert import PATIENCE, Expert, above, tip
from flashrt_ros.demo.nodes import contract_file
from flashrt_ros.demo.render import Renderer
from flashrt_ros.demo.task import LIGHTS_OVER, Disturbance, Kind, Outcome, Task, draw_scenario
from flashrt_ros.demo.world import JOINTS, World
from flashrt_ros.policy.contract import load_contract
from flashrt_ros.policy.processing import Observation


def loop(task: Task, expert: Expert, renderer: Renderer) -> ClosedLoop:
    def plan(observation: Observation) -> np.ndarray:
        expert.look()
        return expert.plan(observation.state)

    return ClosedLoop(task, renderer, plan, load_contract(contract_file()).action, apply_after=2)


def test_tip_is_where_above_puts_it() -> None:
    world = World()
    for place, height in (((0.2, 0.1), 0.05), ((0.12, -0.1), 0.1), ((0.0, 0.22), 0.02)):
        joints = above(np.array(place), height)
        assert tip(joints) == pytest.approx([*place, height])
        world.data.qpos[: len(JOINTS)] = joints
        world._place()
        assert world.data.site("tip").xpos == pytest.approx([*place, height], abs=1e-9)


@pytest.mark.parametrize("kind", Kind)
def test_it_solves_the_task(kind: Kind, dark: Renderer) -> None:
    for seed in range(8):
        task = Task(World(), draw_scenario(kind, seed), seed)
        assert loop(task, Expert(task), dark).run() is Outcome.SUCCESS


def test_it_recovers_from_a_push_that_spoils_the_press(dark: Renderer) -> None:
    push = Disturbance(10, 10, (0.0, -0.5, -0.3, 0.0, 0.0, 0.0))
    late = []
    for seed in range(4):
        for pushes in ([], [push]):
            task = Task(World(), draw_scenario(Kind.NAMED, seed), seed, pushes)
            assert loop(task, Expert(task), dark).run() is Outcome.SUCCESS
            late.append(task.tick)
    assert all(pushed > calm + 2 for calm, pushed in zip(late[::2], late[1::2], strict=True))


def test_it_waits_for_the_light_to_go_out() -> None:
    task = Task(World(), draw_scenario(Kind.LIT, 2), 2)
    expert = Expert(task)
    expert.look()
    assert expert.goals == ()
    task.tick = task.scenario.first_light
    expert.look()
    assert expert.goals == ()
    assert np.array_equal(expert.plan(task.world.positions), np.tile(task.world.positions, (16, 1)))
    task.tick = LIGHTS_OVER
    expert.look()
    assert expert.goals == task.scenario.goals


def test_it_guesses_when_there_is_no_light_to_wait_for() -> None:
    task = Task(World(), draw_scenario(Kind.LIT, 2), 2)
    task.tick = LIGHTS_OVER
    expert = Expert(task, guess=(3,))
    for _ in range(PATIENCE):
        expert.look()
    assert expert.goals == ()
    expert.look()
    assert expert.goals == (3,)
