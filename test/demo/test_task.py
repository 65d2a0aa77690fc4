# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from flashrt_ros.demo.expert import above
from flashrt_ros.demo.task import (
    LIGHTS_OVER,
    LIT_TICKS,
    TIME_LIMIT,
    Disturbance,
    Kind,
    Outcome,
    Scenario,
    Task,
    draw_scenario,
)
from flashrt_ros.demo.world import BUTTONS, World
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


def push(task: Task, button: int) -> None:
    """Press a button and let it go."""
    place = task.world.data.body(f"socket_{BUTTONS[button]}").xpos
    for height in (0.08, 0.06, 0.04, 0.012, 0.06):
        for _ in range(4):
            task.step(above(place, height))


def wander(task: Task, ticks: int) -> list[bytes]:
    random = np.random.default_rng(5)
    states = []
    for _ in range(ticks):
        task.step(task.world.positions + random.normal([0, 0.08, 0.04, 0, 0, 0], 0.1))
        states.append(task.save())
    return states


@pytest.mark.parametrize("kind", Kind)
def test_an_episode_is_a_function_of_seed_and_targets(kind: Kind) -> None:
    pushes = [Disturbance(3, 4, (0.1, 0.2, 0.0, 0.0, 0.0, 0.0))]
    first = wander(Task(World(9), draw_scenario(kind, 7), 7, pushes), 20)
    assert wander(Task(World(2), draw_scenario(kind, 7), 7, pushes), 20) == first
    assert wander(Task(World(2), draw_scenario(kind, 7), 7), 20)[3:] != first[3:]
    assert draw_scenario(kind, 8) != draw_scenario(kind, 7)


def test_a_saved_episode_continues_to_the_byte() -> None:
    task = Task(World(), draw_scenario(Kind.ORDER, 3), 3)
    push(task, task.scenario.goals[0])
    saved = task.save()
    first = wander(task, 10)
    task.load(saved)
    assert task.presses == task.scenario.goals[:1]
    assert task.save() == saved
    assert wander(task, 10) == first
    with pytest.raises(FlashrtError) as refused:
        task.load(saved[:-1])
    assert refused.value.code == ErrorCode.DAMAGED


@pytest.mark.parametrize("phase", range(LIT_TICKS))
def test_who_looks_often_enough_sees_every_light_and_then_darkness(phase: int) -> None:
    for seed in range(20):
        scenario = draw_scenario(Kind.ORDER, seed)
        task = Task(World(), scenario, seed)
        seen: list[int] = []
        for tick in range(LIGHTS_OVER + LIT_TICKS):
            task.tick = tick
            lit = task.lit()
            if tick % LIT_TICKS == phase:
                seen += [button for button in range(4) if lit[button] and button not in seen]
            assert tick < LIGHTS_OVER or not any(lit)
        assert tuple(seen) == scenario.lights


def test_the_right_button_is_success_and_another_is_not() -> None:
    task = Task(World(), Scenario(Kind.LIT, "", (), 0, (1,)), 4)
    push(task, 1)
    assert task.outcome is Outcome.SUCCESS
    push(task, 0)
    assert task.outcome is Outcome.SUCCESS
    task = Task(World(), Scenario(Kind.LIT, "", (), 0, (1,)), 4)
    push(task, 0)
    assert task.outcome is Outcome.WRONG


def test_order_counts() -> None:
    for order, outcome in (((2, 3), Outcome.SUCCESS), ((3, 2), Outcome.WRONG)):
        task = Task(World(), Scenario(Kind.ORDER, "", (), 0, (2, 3)), 4)
        push(task, order[0])
        push(task, order[1])
        assert task.outcome is outcome


def test_time_runs_out_and_begins_again_with_an_instruction() -> None:
    task = Task(World(), draw_scenario(Kind.NAMED, 1), 1)
    for _ in range(TIME_LIMIT[Kind.NAMED] - 1):
        assert task.step(task.world.targets) is Outcome.RUNNING
    assert task.step(task.world.targets) is Outcome.TIMEOUT
    task.instruct(Kind.NAMED, "press the red button", (0,))
    assert task.step(task.world.targets) is Outcome.RUNNING
