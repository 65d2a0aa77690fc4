# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import re
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from flashrt_ros.demo.render import VIEWS, open_renderer
from flashrt_ros.demo.task import Disturbance, Kind, Task, draw_scenario, saved_tick
from flashrt_ros.demo.world import JOINTS, World

if TYPE_CHECKING:
    from conftest import Observer, RobotProcess

PERIOD = 100_000_000  # ns, of the default rate
Start = Callable[..., "RobotProcess"]


def moves(world: World, count: int) -> list[list[float]]:
    random = np.random.default_rng(1)
    return (world.positions + np.cumsum(random.normal(0, 0.05, (count, len(JOINTS))), axis=0)).tolist()


def drive(observer: Observer, stamp: int, targets: list[list[float]]) -> list[dict[str, bytes]]:
    """Command one tick after another from `stamp` on; return the ticks that followed."""
    ticks = []
    for target in targets:
        observer.command(stamp, target)
        stamp += PERIOD
        ticks.append(observer.tick(stamp))
    return ticks


def test_lockstep_shows_the_world_and_steps_once_a_command(start_robot: Start, observer: Observer) -> None:
    start_robot(seed=3, renderer="drawn")
    world = World(3)
    renderer = open_renderer(world, "drawn")
    assert observer.first_tick() == PERIOD
    for index, target in enumerate(moves(world, 5), start=1):
        observer.command(index * PERIOD, target[::-1], JOINTS[::-1])  # joints go by name
        world.step(target, 0.1)
        tick = observer.tick((index + 1) * PERIOD)
        assert tick["state"] == np.concatenate([world.positions, world.velocities]).tobytes()
        for view in VIEWS:
            assert tick[view] == renderer.render(view).tobytes()
    assert list(observer.states[PERIOD].name) == list(JOINTS)
    assert max(observer.parts) == 6 * PERIOD


def test_only_a_right_command_of_the_tick_advances_it(start_robot: Start, observer: Observer) -> None:
    robot = start_robot(republish_period=0.05)
    stamp = observer.first_tick()
    target = World(0).positions.tolist()
    drive(observer, stamp, [target])
    observer.command(stamp, target)  # of the tick before
    observer.command(stamp + 2 * PERIOD, target)  # of the tick after
    observer.command(stamp + PERIOD, [math.nan, *target[1:]])
    observer.command(stamp + PERIOD, target[1:], JOINTS[1:])
    observer.command(stamp + PERIOD, target[1:])
    robot.wait_for_log("not finite")
    seen = len(observer.clocks)
    observer.until(lambda: len(observer.clocks) >= seen + 4, "the tick again")
    assert set(observer.clocks[seen:]) == {stamp + PERIOD}
    drive(observer, stamp + PERIOD, [target])


def test_who_joins_late_gets_the_tick(start_robot: Start, make_observer: Callable[[], Observer]) -> None:
    start_robot(republish_period=0.2)
    first = make_observer()
    stamp = first.first_tick()
    expected = drive(first, stamp, moves(World(0), 3))[-1]
    late = make_observer()
    assert late.first_tick() == stamp + 3 * PERIOD
    assert late.tick(stamp + 3 * PERIOD) == expected


def test_load_world_brings_back_the_bytes_but_not_the_time(start_robot: Start, observer: Observer) -> None:
    start_robot(seed=2)
    stamp = observer.first_tick()
    targets = moves(World(2), 6)
    assert not observer.call("load_world").success
    before = drive(observer, stamp, targets[:2])[-1]
    assert observer.call("save_world").success
    after = drive(observer, stamp + 2 * PERIOD, targets[2:])
    assert observer.call("load_world").success
    assert observer.tick(stamp + 7 * PERIOD) == before
    assert drive(observer, stamp + 7 * PERIOD, targets[2:]) == after
    assert observer.call("reset_world").success
    assert observer.tick(stamp + 12 * PERIOD) == observer.parts[stamp]
    assert observer.clocks == sorted(observer.clocks)


def test_it_plays_an_episode_of_the_task_and_tells_how_it_stands(start_robot: Start, observer: Observer) -> None:
    start_robot(seed=2, renderer="drawn")
    stamp = observer.first_tick()
    observer.until(lambda: bool(observer.episodes), "the state without an episode")
    assert observer.episodes[-1].message == "none"
    push = [1.0, 4.0, 0.3, 0.0, 0.0, 0.0, 0.0, 0.0]
    observer.set_parameters(task="lit", seed=4, push=push)
    assert observer.call("reset_world").success
    observer.until(lambda: observer.episodes[-1].message == "running", "the episode")
    stamp += PERIOD
    observer.tick(stamp)
    task = Task(World(), draw_scenario(Kind.LIT, 4), 4, [Disturbance(1, 4, tuple(push[2:]))])
    target = task.world.positions
    observer.worlds.clear()
    drive(observer, stamp, [target.tolist()] * 12)
    for _ in range(12):
        task.step(target)
    observer.until(lambda: observer.worlds and saved_tick(observer.worlds[-1]) == 12, "the state of tick 12")
    assert observer.worlds[-1] == task.save()
    assert any(task.world.lights)
    assert len(observer.episodes) == 2  # nothing was pressed, so nothing was told
    assert observer.call("reset_world").success
    observer.until(lambda: len(observer.episodes) == 3, "the same episode, told anew")
    assert observer.episodes[2] == observer.episodes[1]


@pytest.mark.parametrize("values", [{"task": "dance"}, {"task": "lit", "push": [1.0]}])
def test_reset_refuses_an_episode_that_is_none(
    start_robot: Start, observer: Observer, values: dict[str, object]
) -> None:
    start_robot(seed=2)
    stamp = observer.first_tick()
    observer.set_parameters(**values)
    answer = observer.call("reset_world")
    assert not answer.success
    assert "task is 'dance'" in answer.message or "push is" in answer.message
    drive(observer, stamp, [World(2).positions.tolist()])  # the world goes on


def test_pacing_can_be_changed_while_it_runs(start_robot: Start, observer: Observer) -> None:
    start_robot(pacing=0.1)
    stamp = observer.first_tick()
    targets = [World(0).positions.tolist()] * 60
    observer.set_parameters(pacing=0.0)
    begun = time.monotonic()
    drive(observer, stamp, targets)
    assert time.monotonic() - begun < 40 * 0.1 / 0.1


def test_pacing_bounds_the_speed(start_robot: Start, observer: Observer) -> None:
    start_robot(pacing=4.0)
    stamp = observer.first_tick()
    targets = [World(0).positions.tolist()] * 8
    begun = time.monotonic()
    drive(observer, stamp, targets)
    assert time.monotonic() - begun > 6 * 0.1 / 4  # the first was waited for, and the second makes up for it


def test_realtime_holds_the_last_targets(start_robot: Start, observer: Observer) -> None:
    robot = start_robot(mode="realtime", rate=50.0, controller_timeout=0.2)

    def last() -> np.ndarray:
        return np.array(observer.states[max(observer.states)].position)

    observer.until(lambda: len(observer.states) > 10, "joint states without a command")
    assert np.abs(last() - World(0).positions).max() < 1e-6
    target = World(0).positions + 0.2
    observer.until_heard()
    observer.command(0, target.tolist())
    robot.wait_for_log("holding the last targets")
    known = len(observer.states)
    observer.until(lambda: len(observer.states) > known + 20, "joint states after the commands")
    assert np.abs(last() - target).max() < 1e-3
    assert observer.call("reset_world").success
    known = len(observer.states)
    observer.until(lambda: len(observer.states) > known + 20, "joint states after the reset")
    assert np.abs(last() - World(0).positions).max() < 1e-3
    assert not observer.clocks


@pytest.mark.parametrize("mode", ["lockstep", "realtime"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_with_0(start_robot: Start, observer: Observer, mode: str, number: signal.Signals) -> None:
    robot = start_robot(mode=mode)
    observer.until(lambda: bool(observer.states), "joint states")
    robot.process.send_signal(number)
    assert robot.exit_code() == 0
    assert "Traceback" not in robot.log()


@pytest.mark.parametrize(("name", "value"), [("mode", "fast"), ("rate", 30.0), ("renderer", "vulkan")])
def test_a_bad_parameter_is_named_and_ends_it_with_1(start_robot: Start, name: str, value: object) -> None:
    robot = start_robot(**{name: value})
    assert robot.exit_code() == 1
    assert re.search(rf"parameter '?{name}'? is '?{value}", robot.log())
    assert "Traceback" not in robot.log()
