# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Real-time chunking from the policy to the commands, on simulated time: where chunks take over, and with what rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from policy_world import MS, World

from flashrt_ros.models.tiny_pi0 import STATE, write_tiny_pi0
from flashrt_ros.policy.contract import Contract, load_contract
from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.policy.session import Mode, Session
from flashrt_ros.tools.audit import random_observation

STEP = 0.5
JOINTS = ", ".join(STATE)
CONTRACT = f"""
observation:
  images: {{front: {{topic: image, type: sensor_msgs/msg/Image, qos: reliable, max_age: 0.3}}}}
  state: {{topic: joint_states, type: sensor_msgs/msg/JointState, joints: [{JOINTS}], max_age: 0.3}}
action:
  joints: [{JOINTS}]
  rate: 50.0
  mode: absolute
  limits:
    position: {{{", ".join(f"{joint}: [-9.0, 9.0]" for joint in STATE)}}}
    step: {{{", ".join(f"{joint}: {STEP}" for joint in STATE)}}}
  start_tolerance: 9.0
  threshold: 7
  strategy: rtc
  command: {{topic: joint_command, type: sensor_msgs/msg/JointState}}
  safety: hold
heartbeat_timeout: 0.5
"""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = write_tiny_pi0(tmp_path_factory.mktemp("pi05"), "pi05", prefix_lock=True, steps=1)
    return load_policy(folder, device="cpu")


@pytest.fixture(scope="module")
def contract(tmp_path_factory: pytest.TempPathFactory) -> Contract:
    path = tmp_path_factory.mktemp("contract") / "contract.yaml"
    path.write_text(CONTRACT)
    return load_contract(path)


@pytest.fixture
def world(policy: Policy, contract: Contract) -> Callable[..., World]:
    """`world(latency, loses=...)`: one in which the policy runs."""

    def make(latency: Callable[[Random], int], **options: Callable[[int], bool]) -> World:
        session, numbers = Session(policy), itertools.count()
        session.begin("press the red button", seed=1)

        def observe(stamp: int):
            return random_observation(policy, np.random.default_rng(next(numbers)), stamp)

        world = World(session, contract, observe, latency, **options)
        world.run(0.1)
        world.verb(1, lambda: None)
        return world

    return make


def takeovers(world: World) -> list[tuple[int, int]]:
    """Check every row that ran; of each chunk that took over from another, its first row and how many it holds."""
    active, found = [tick for tick in world.ticks if tick.active], []
    assert all(world.sent[tick.chunk_id].epoch == tick.epoch for tick in active)
    for before, tick in itertools.pairwise(active):
        old, new, row = world.sent[before.chunk_id], world.sent[tick.chunk_id], tick.cursor - 1
        if tick.epoch != before.epoch:
            continue
        if tick.chunk_id == before.chunk_id:
            assert row == before.cursor
        elif new.row is not None:
            held = new.chunk.held or 0
            assert new.row + row == before.cursor  # the row that would have been next, whatever happened meanwhile
            assert np.array_equal(new.chunk.actions[:held], old.chunk.actions[new.row : new.row + held])
            found.append((row, held))
    for before, after in itertools.pairwise(world.commands):
        assert np.abs(after - before).max() <= STEP + 1e-9
    return found


def test_with_a_constant_latency_each_chunk_takes_over_where_it_holds_no_more(world) -> None:
    running = world(lambda random: 50 * MS)
    running.run(3.0)
    found = takeovers(running)[1:]  # what the first holds is predicted from the time that it took here
    assert len(found) > 25
    assert all(row <= held for row, held in found)
    assert sum(row == held for row, held in found) > len(found) / 2
    assert running.controller.late_ticks == 0
    assert not running.controller.dropped


def test_a_latency_that_varies_is_rarely_longer_than_predicted(world) -> None:
    running = world(lambda random: random.randint(5, 90) * MS)
    running.run(6.0)
    found = takeovers(running)
    assert len(found) > 50
    assert sum(row > held for row, held in found) < len(found) / 5
    assert not running.controller.dropped


def test_where_an_inference_takes_longer_than_its_chunk_each_runs_or_is_counted(world) -> None:
    running = world(lambda random: 350 * MS)
    running.run(8.0)
    takeovers(running)
    ran = {tick.chunk_id for tick in running.ticks if tick.active}
    late = running.controller.dropped["late: all its rows are past"]
    assert min(len(ran), late) > 3
    assert len(running.sent) - len(ran) - late in (0, 1)  # the newest may be on its way
    assert running.controller.late_chunks > 8


def test_a_chunk_that_is_lost_is_asked_for_again_and_the_next_is_drawn_freely(world) -> None:
    running = world(lambda random: 50 * MS, loses=lambda number: number % 4 == 0)
    running.run(8.0)
    assert len(takeovers(running)) > 10
    ran = {tick.chunk_id for tick in running.ticks if tick.active}
    lost = [number for number in running.sent if number % 4 == 0]
    assert len(lost) > 5
    assert not ran.intersection(lost)
    assert all(running.sent[number + 1].row is None for number in lost if number + 1 in running.sent)


@pytest.mark.parametrize(
    "verb",
    [
        lambda session: session.instruct("press the blue button"),
        lambda session: session.begin("press the blue button"),
        lambda session: session.rollback(2, Mode.EXACT),
        lambda session: session.rollback(3),
        lambda session: session.restore("seen", Mode.EXACT),
        lambda session: session.restore("seen"),
    ],
    ids=["instruct", "begin", "rollback exact", "rollback", "restore exact", "restore"],
)
def test_a_verb_in_the_middle_runs_no_row_of_before_and_chunks_go_on_from_each_other_behind_it(world, verb) -> None:
    running = world(lambda random: random.randint(10, 70) * MS)
    running.run(0.5)
    running.session.snapshot("seen")
    for epoch in range(2, 8):
        running.run(0.37)
        running.verb(epoch, lambda: verb(running.session))
        running.run(0.4)
        behind = [tick for tick in running.ticks if tick.epoch == epoch and tick.active]
        assert len({tick.chunk_id for tick in behind}) > 2
    assert len(takeovers(running)) > 20
