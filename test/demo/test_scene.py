# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import pytest
from diagnostic_msgs.msg import DiagnosticStatus

from flashrt_ros.demo.expert import Expert
from flashrt_ros.demo.scene import NO_PUSH, NO_TASK, Scene, load_world
from flashrt_ros.demo.task import TICK, Kind, Outcome, Task, draw_scenario
from flashrt_ros.demo.world import BUTTONS, World
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

SEED = 3
PUSH = [2.0, 3.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]


def values(status: DiagnosticStatus) -> dict[str, str]:
    return {value.key: value.value for value in status.values}


def test_an_episode_is_that_of_the_task() -> None:
    scene, task = Scene(World()), Task(World(), draw_scenario(Kind.NAMED, SEED), SEED)
    scene.reset("named", SEED, NO_PUSH, TICK)
    expert = Expert(task)
    expert.look()
    while task.outcome is Outcome.RUNNING:
        target = expert.plan(task.world.positions)[0]
        task.step(target)
        scene.step(target, TICK)
    assert scene.save().state == task.save()
    told = scene.status()
    assert (told.message, told.level) == ("success", DiagnosticStatus.OK)
    assert values(told) == {
        "seed": str(SEED),
        "task": "named",
        "instruction": task.scenario.instruction,
        "pressed": BUTTONS[task.scenario.goals[0]],
        "tick": str(task.tick),
    }


def test_a_wrong_button_is_a_warning() -> None:
    scene = Scene(World())
    scene.reset("named", SEED, NO_PUSH, TICK)
    assert scene.task is not None
    scene.task.outcome = Outcome.WRONG
    assert (scene.status().message, scene.status().level) == ("wrong button", DiagnosticStatus.WARN)


def test_a_push_moves_the_arm_while_it_lasts() -> None:
    scene = Scene(World())
    scene.reset("lit", SEED, PUSH, TICK)
    home, pans = scene.world.positions, []
    for _ in range(8):
        scene.step(home, TICK)
        pans.append(scene.world.positions[0] - home[0])
    assert max(map(abs, pans[:2])) < 0.02
    assert pans[4] > 0.2
    assert pans[-1] < pans[4]


def test_without_a_task_there_is_a_world_alone() -> None:
    scene, world = Scene(World()), World(SEED)
    scene.reset(NO_TASK, SEED, PUSH, 0.02)  # a push belongs to a task
    scene.step(world.positions + 0.1, 0.02)
    world.step(world.positions + 0.1, 0.02)
    assert scene.save().state == world.save()
    assert (scene.status().message, values(scene.status())) == (NO_TASK, {"seed": str(SEED)})


def test_load_brings_back_task_and_world() -> None:
    scene = Scene(World())
    scene.reset("lit", SEED, PUSH, TICK)
    scene.step(scene.world.positions, TICK)
    saved = scene.save()
    scene.step(scene.world.positions, TICK)
    scene.reset(NO_TASK, 1, NO_PUSH, TICK)
    scene.load(saved)
    assert scene.task is not None
    assert scene.task.tick == 1
    assert scene.save().state == saved.state


@pytest.mark.parametrize("task", [NO_TASK, "lit"])
def test_another_world_takes_over_what_a_scene_saved(task: str) -> None:
    scene, world = Scene(World()), World()
    scene.reset(task, SEED, NO_PUSH, TICK)
    scene.step(scene.world.positions + 0.1, TICK)
    load_world(world, scene.save().state)
    assert world.save() == scene.world.save()


@pytest.mark.parametrize(
    ("task", "push", "dt", "words"),
    [
        ("dance", NO_PUSH, TICK, "dance"),
        ("lit", [1.0], TICK, "first tick"),
        ("lit", [math.nan, *NO_PUSH[1:]], TICK, "nan"),
        ("lit", NO_PUSH, 0.05, "0.05 s"),
    ],
)
def test_what_does_not_fit_is_named_and_changes_nothing(task: str, push: list[float], dt: float, words: str) -> None:
    scene = Scene(World(5))
    before = scene.save().state
    with pytest.raises(FlashrtError, match=words) as caught:
        scene.reset(task, SEED, push, dt)
    assert caught.value.code is ErrorCode.BAD_REQUEST
    assert scene.save().state == before
