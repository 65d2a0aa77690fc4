# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from flashrt_ros.demo.render import VIEWS, Renderer, open_renderer
from flashrt_ros.demo.world import BUTTONS, World
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

OPEN = "import sys; from flashrt_ros.demo.render import *; r = open_renderer(World(0), sys.argv[1]); "


@pytest.fixture
def world() -> World:
    return World(3)


@pytest.fixture(params=["egl", "drawn"])
def renderer(request: pytest.FixtureRequest, world: World) -> Iterator[Renderer]:
    try:
        opened = open_renderer(world, request.param)
    except FlashrtError as error:
        pytest.skip(str(error))
    yield opened
    opened.close()


def test_image_is_a_function_of_the_saved_state(renderer: Renderer, world: World) -> None:
    world.set_lights((False, True, False, False))
    saved, before = world.save(), {view: renderer.render(view) for view in VIEWS}
    world.set_lights((True, False, False, True))
    world.step(world.positions + 0.2, 0.1)
    for view in VIEWS:
        assert not np.array_equal(renderer.render(view), before[view])
    world.load(saved)
    for view in VIEWS:
        assert before[view].shape == (96, 96, 3)
        assert before[view].dtype == np.uint8
        assert np.array_equal(renderer.render(view), before[view])


def test_another_process_gives_the_same_bytes(renderer: Renderer) -> None:
    script = OPEN + "sys.stdout.buffer.write(b''.join(r.render(view).tobytes() for view in VIEWS))"
    answer = subprocess.run(
        [sys.executable, "-c", script, renderer.name], capture_output=True, check=True, timeout=60
    ).stdout
    own = open_renderer(World(0), renderer.name)
    assert answer == b"".join(own.render(view).tobytes() for view in VIEWS)


def test_renderers_do_not_disturb_one_another(renderer: Renderer, world: World) -> None:
    before = renderer.render("front")
    first = open_renderer(World(5), renderer.name)
    expected = first.render("front")
    second = open_renderer(World(5), renderer.name)
    first.close()
    assert np.array_equal(second.render("front"), expected)
    third = open_renderer(World(5), renderer.name)
    del second
    assert np.array_equal(third.render("front"), expected)
    assert np.array_equal(renderer.render("front"), before)


def test_drawn_resembles_egl(world: World) -> None:
    try:
        egl = open_renderer(world, "egl")
    except FlashrtError as error:
        pytest.skip(str(error))
    drawn = open_renderer(world, "drawn")
    for _ in range(2):
        for view in VIEWS:
            apart = np.abs(egl.render(view).astype(int) - drawn.render(view)).max(axis=2)
            assert (apart > 60).mean() < 0.03
        world.step(world.positions + np.array([0.6, 0.5, -0.3, 0.2, 0.5, 0.5]), 0.5)


@pytest.mark.parametrize("button", range(len(BUTTONS)))
def test_a_light_shows_at_its_button(renderer: Renderer, world: World, button: int) -> None:
    dark = renderer.render("front").astype(int)
    world.set_lights(tuple(index == button for index in range(len(BUTTONS))))
    lit = renderer.render("front").astype(int)
    change = np.abs(lit - dark).max(axis=2) > 40
    rows, columns = np.nonzero(change)
    assert 10 < len(rows) < 300
    assert lit[change].max() > 250
    y = world.data.body(f"socket_{BUTTONS[button]}").xpos[1]
    assert (columns.mean() - 47.5) * y > 0  # the front camera faces the arm: positive y is to the right
    assert np.ptp(columns) < 20
    assert np.ptp(rows) < 20


def test_auto_says_why_it_draws() -> None:
    without_egl = os.environ | {"PYOPENGL_PLATFORM": "none"}
    run = [sys.executable, "-c", OPEN + "print(r.name, r.why)"]
    auto = subprocess.run([*run, "auto"], capture_output=True, text=True, check=True, timeout=60, env=without_egl)
    assert auto.stdout.startswith("drawn no OpenGL through EGL")
    egl = subprocess.run([*run, "egl"], capture_output=True, text=True, timeout=60, env=without_egl)
    assert egl.returncode == 1
    assert "libegl1" in egl.stderr


@pytest.mark.parametrize(("kind", "width", "named"), [("vulkan", 96, "vulkan"), ("drawn", 8, "8 x 96")])
def test_bad_requests(world: World, kind: str, width: int, named: str) -> None:
    with pytest.raises(FlashrtError, match=named) as refused:
        open_renderer(world, kind, width, 96)
    assert refused.value.code == ErrorCode.BAD_REQUEST
