# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import math
import subprocess
import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest

from flashrt_ros.demo.world import BUTTONS, JOINTS, World
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

DT = 0.1


def wander(world: World, ticks: int, seed: int = 5) -> list[bytes]:
    """Step with random moves that lead down to the table; return the state after each tick."""
    random = np.random.default_rng(seed)
    states = []
    for _ in range(ticks):
        world.step(world.positions + random.normal([0, 0.08, 0.04, 0, 0, 0], 0.1), DT)
        states.append(world.save())
    return states


def above(place: np.ndarray, height: float) -> np.ndarray:
    """Return joints that hold the fingertips, pointing down, `height` above a place on the table."""
    upper, fore, hand, shoulder = 0.13, 0.13, 0.035 + 0.074, 0.08
    out, up = math.hypot(place[0], place[1]), height + hand - shoulder
    elbow = math.acos((out**2 + up**2 - upper**2 - fore**2) / (2 * upper * fore))
    lift = math.atan2(out, up) - math.atan2(fore * math.sin(elbow), upper + fore * math.cos(elbow))
    return np.array([math.atan2(place[1], place[0]), lift, elbow, math.pi - lift - elbow, 0.0, 0.0])


def refusal(code: ErrorCode, *words: str) -> pytest.RaisesExc:
    return pytest.RaisesExc(
        FlashrtError, check=lambda error: error.code == code and all(word in str(error) for word in words)
    )


def test_restored_state_continues_to_the_byte() -> None:
    world, other = World(3), World(8)
    wander(world, 10)
    world.set_lights((False, True, False, True))
    contacts = 0
    for seed in range(12):  # in contact, about every second point shows that the solver's warm start is missing
        saved = world.save()
        first = wander(world, 3, seed)
        contacts += world.data.ncon
        world.set_lights((True, False, False, False))
        world.load(saved)
        assert world.save() == saved
        assert world.lights == (False, True, False, True)
        assert wander(world, 3, seed) == first
        other.load(saved)
        assert other.seed == 3
        assert wander(other, 3, seed) == first
    assert contacts > 5


def test_another_process_gives_the_same_bytes() -> None:
    script = (
        "import hashlib, sys; sys.path.insert(0, 'test/demo');"
        "from test_world import World, wander; print(hashlib.sha256(b''.join(wander(World(3), 20))).hexdigest())"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.strip() == hashlib.sha256(b"".join(wander(World(3), 20))).hexdigest()


def test_reset_draws_the_scene_from_the_seed() -> None:
    world = World(1)
    first = world.save()
    wander(world, 3)
    world.set_lights((True,) * 4)
    world.reset(1)
    assert world.save() == first
    world.reset(2)
    assert not np.array_equal(world.data.mocap_pos, World(1).data.mocap_pos)


def test_holds_still_without_new_targets() -> None:
    world = World(2)
    start = world.positions
    for _ in range(50):
        world.step(world.targets, DT)
    assert np.abs(world.positions - start).max() < 1e-6
    assert np.abs(world.velocities).max() < 1e-6


@pytest.mark.parametrize("side", [0, 1])
def test_stays_within_limits(side: int) -> None:
    world = World(0)
    # Without a table, so that nothing but its limits stops a joint.
    world.model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    for joint in range(len(JOINTS)):
        targets = world.targets
        targets[joint] = (-10.0, 10.0)[side]
        for _ in range(10):
            world.step(targets, DT)
            low, high = world.limits.T
            assert (world.positions > low - 0.01).all()
            assert (world.positions < high + 0.01).all()


@pytest.mark.parametrize("button", range(len(BUTTONS)))
def test_arm_presses_each_button(button: int) -> None:
    world = World(4)
    place = world.data.body(f"socket_{BUTTONS[button]}").xpos
    for height in (0.08, 0.06, 0.04, 0.012):
        for _ in range(4):
            world.step(above(place, height), DT)
    assert world.pressed == tuple(index == button for index in range(len(BUTTONS)))
    for _ in range(4):
        world.step(above(place, 0.06), DT)
    assert not any(world.pressed)


def test_bad_requests_change_nothing() -> None:
    world = World(0)
    before = world.save()
    targets = world.targets
    with refusal(ErrorCode.BAD_REQUEST, "(5,)"):
        world.step(targets[:5], DT)
    with refusal(ErrorCode.BAD_REQUEST, "elbow"):
        world.step([0.0, 0.0, math.nan, 0.0, 0.0, 0.0], DT)
    for dt in (0.0, -0.1, 0.0333, math.inf):
        with refusal(ErrorCode.BAD_REQUEST, str(dt)):
            world.step(targets + 0.1, dt)
    with refusal(ErrorCode.BAD_REQUEST, "-1"):
        world.reset(-1)
    with refusal(ErrorCode.BAD_REQUEST, "3 lights"):
        world.set_lights((True, True, True))
    assert world.save() == before


def test_bad_saves_change_nothing() -> None:
    world = World(0)
    before = world.save()
    flipped = bytearray(before)
    flipped[200] ^= 1
    for damaged in (b"", b"x" * 2000, before[:-1], bytes(flipped)):
        with refusal(ErrorCode.DAMAGED, "save it again"):
            world.load(damaged)
    body = bytearray(before[:-32])
    body[8] ^= 1  # the fingerprint of the model
    with refusal(ErrorCode.MANIFEST_MISMATCH, "another model"):
        world.load(bytes(body) + hashlib.sha256(body).digest())
    assert world.save() == before


def test_unstable_physics_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes MUJOCO_LOG.TXT
    world = World(0)
    saved = world.save()
    world.data.qvel[0] = 1e12
    with refusal(ErrorCode.NOT_FINITE, "reset or load"):
        world.step(world.targets, DT)
    world.load(saved)
    world.step(world.targets, DT)
