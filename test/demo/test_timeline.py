# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The timeline shows what happened, where it happened."""

from __future__ import annotations

import numpy as np
import pytest
from builtin_interfaces.msg import Duration

from flashrt_interfaces import srv
from flashrt_ros.demo.camera import Camera
from flashrt_ros.demo.canvas import COOL, FAINT, GOOD, MIXED, VIOLET
from flashrt_ros.demo.task import Kind, Scenario, Task, draw_scenario
from flashrt_ros.demo.timeline import STILL_PIXELS, draw_timeline
from flashrt_ros.demo.witness import Heard, Span
from flashrt_ros.demo.world import World

SEED, RETRY, END = 7, 30, 40
LEFT, RIGHT, SCALE = 150, 1040, 2  # of the drawing


def verb(name: str, begin: float) -> Span:
    return Span(name, begin, begin + 0.01, srv.Rollback.Response(taken=Duration(nanosec=400_000)))


@pytest.fixture
def scenario() -> Scenario:
    return draw_scenario(Kind.LIT, SEED)


@pytest.fixture
def heard(scenario: Scenario) -> Heard:
    found = Heard()
    task = Task(World(), scenario, SEED)
    for tick in range(END + 1):
        found.states[tick] = task.save()
        found.command_times[tick] = 100 + tick / 10
        task.step(task.world.positions)
    found.active = set(range(1, 26)) | set(range(RETRY, END))
    found.asked = {1: 100.05, RETRY: 102.95}
    found.answered = {1: 100.10, RETRY: 103.0}
    found.gate = [(100.0, False), (100.1, True), (102.6, False), (103.0, True)]
    found.verbs = [verb("snapshot", 101.0), verb("rollback", 102.8)]
    return found


def draw(heard: Heard, scenario: Scenario) -> np.ndarray:
    camera = Camera(scenario, SEED, STILL_PIXELS, 10, "drawn")
    return np.asarray(draw_timeline(heard, scenario, camera, range(20, 26), RETRY))


def row(picture: np.ndarray, colour: tuple[int, int, int], top: float = 0.25) -> list[float]:
    """Where a colour is in the middle of the row of the upper part that has most of it, from 0 to 1."""
    upper = picture[int(top * len(picture)) : int(0.6 * len(picture)), LEFT * SCALE : RIGHT * SCALE]
    there = np.all(upper == colour, axis=-1)
    best = there[there.sum(axis=1).argmax()]
    return list(np.flatnonzero(best) / best.size)


def test_everything_is_where_it_happened(heard: Heard, scenario: Scenario) -> None:
    picture = draw(heard, scenario)
    begin, end = 99.9, 104.15

    def share(time: float) -> float:
        return (time - begin) / (end - begin)

    gate = row(picture, GOOD, 0.3)
    assert gate[0] == pytest.approx(share(100.1), abs=0.01)
    assert gate[-1] == pytest.approx(share(104.0), abs=0.01)
    assert not [x for x in gate if share(102.65) < x < share(102.95)]
    verbs = row(picture, VIOLET, 0.3)
    assert verbs[0] == pytest.approx(share(101.0), abs=0.01)
    assert verbs[-1] == pytest.approx(share(102.8), abs=0.01)
    held = row(picture, FAINT, 0.3)
    assert {round(x, 1) for x in held} == {round(share(time), 1) for time in (100.0, 102.6, 102.9, 104.0)}
    assert len(row(picture, MIXED, 0.3)) > 30


def test_without_inferences_there_is_no_timeline_of_them(heard: Heard, scenario: Scenario) -> None:
    before = draw(heard, scenario)
    heard.asked = {1: 100.05}
    after = draw(heard, scenario)
    assert (after == COOL).all(axis=-1).sum() < (before == COOL).all(axis=-1).sum()
    assert after.std() > 20
