# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The film is a moving picture that shows what it is given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from flashrt_ros.demo.camera import Camera
from flashrt_ros.demo.canvas import BAD, GOOD, MIXED
from flashrt_ros.demo.film import PICTURE_WIDTH, THUMBNAIL_WIDTH, Branch, Film, Past, write_gif
from flashrt_ros.demo.task import Kind, Scenario, Task, draw_scenario
from flashrt_ros.demo.world import World

SEED, RETRY, END = 7, 10, 13
COLOURS = (GOOD, MIXED, BAD)


def states(scenario: Scenario, turn: float, first: int, last: int) -> dict[int, bytes]:
    """States of an episode in which the arm turns by `turn` rad from tick RETRY on."""
    task = Task(World(), scenario, SEED)
    home = task.world.positions
    found = {}
    for tick in range(last + 1):
        if tick >= first:
            found[tick] = task.save()
        home[0] += turn * (tick >= RETRY)
        task.step(home)
    return found


@pytest.fixture
def scenario() -> Scenario:
    return draw_scenario(Kind.LIT, SEED)


@pytest.fixture
def camera(scenario: Scenario) -> Iterator[Camera]:
    made = Camera(scenario, SEED, PICTURE_WIDTH, THUMBNAIL_WIDTH, "drawn")
    yield made
    made.close()


@pytest.fixture
def film(scenario: Scenario, camera: Camera) -> Film:
    past = states(scenario, 0.0, 1, RETRY)
    branches = [
        Branch(f"branch {turn}", colour, states(scenario, turn, RETRY, END), [RETRY], [], [past[1]], "over", turn > 0)
        for turn, colour in zip((0.3, -0.3, 0.0), COLOURS, strict=True)
    ]
    return Film(camera, Past("press it", past, [1, 9], 4, range(6, 9), RETRY, 0.0004), branches)


def panel(frame: Image.Image, number: int) -> np.ndarray:
    """The pixels of one of three pictures."""
    left = 14 + number * (PICTURE_WIDTH + 12)
    return np.asarray(frame)[92:340, left : left + PICTURE_WIDTH]


def difference(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one.astype(float) - other).mean())


def test_frames_show_past_parting_and_branches(film: Film) -> None:
    frames = [np.asarray(image) for image, _ in film.frames()]
    assert len(frames) == (RETRY - 1) + 2 + (END - RETRY + 1)
    assert len({frame.shape for frame in frames}) == 1
    assert all(frame.std() > 20 for frame in frames)
    assert all(difference(frames[tick], frames[tick - 1]) > 0 for tick in range(1, RETRY - 1))


def test_the_panels_part_at_the_retry_and_not_before(film: Film) -> None:
    images = [image for image, _ in film.frames()]
    parting, last = images[RETRY], images[-1]
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert not difference(panel(parting, one), panel(parting, other))  # the arm is where it was
        assert difference(panel(last, one), panel(last, other)) > 1.0
    assert difference(panel(parting, 2), panel(last, 2)) < difference(panel(parting, 0), panel(last, 0)) / 3


def test_what_is_remembered_is_shown_below_the_pictures(film: Film) -> None:
    images = [image for image, _ in film.frames()]
    before, after = (np.asarray(image)[348:398, 50:300] for image in images[RETRY - 1 : RETRY + 1])
    assert difference(before[:24], after[:24]) > 5.0  # two observations in the rows, then none
    assert difference(before[27:, :50], after[27:, :50]) < 1.0  # the first one stays in the rest ...
    assert difference(before[27:, 50:100], after[27:, 50:100]) > 5.0  # ... and the second one does not


def test_a_push_is_drawn_while_it_lasts(film: Film) -> None:
    violet = [int(np.all(np.asarray(image) == (180, 142, 240), axis=-1).sum()) for image, _ in film.frames()]
    assert [tick for tick, count in enumerate(violet[: RETRY - 1], start=1) if count > 100] == [6, 7, 8]


def test_the_gif_has_all_frames_their_times_and_their_colours(film: Film, tmp_path: Path) -> None:
    frames = list(film.frames())
    write_gif(tmp_path / "film.gif", frames)
    with Image.open(tmp_path / "film.gif") as gif:
        assert gif.n_frames == len(frames)
        assert gif.size == frames[0][0].size
        assert gif.info["loop"] == 0
        for index, (image, duration) in enumerate(frames):
            gif.seek(index)
            assert gif.info["duration"] == duration
            assert difference(np.asarray(gif.convert("RGB")), np.asarray(image)) < 6.0
        titles = np.asarray(gif.convert("RGB"))[66]
    for colour in COLOURS:
        assert (np.abs(titles.astype(int) - colour).max(axis=-1) < 16).sum() > 200
