# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Chunks that go on from the one in execution."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flashrt_ros.models.tiny_pi0 import write_tiny_pi0
from flashrt_ros.policy.capsule_file import read_capsule
from flashrt_ros.policy.capsule_folder import CapsuleFolder
from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.realtime import weights
from flashrt_ros.policy.session import Chunk, Mode, Session
from flashrt_ros.runtime.errors import ErrorCode
from flashrt_ros.tools.audit import random_observation

HORIZON, CURSOR, DELAY = 10, 4, 3


@pytest.fixture(scope="module", params=["absolute", "delta"])
def guided(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = write_tiny_pi0(tmp_path_factory.mktemp("pi0"), "pi0", action_mode=request.param)
    return load_policy(folder, device="cpu")


def observation(policy: Policy, stamp: int) -> Observation:
    return random_observation(policy, np.random.default_rng(stamp), stamp)


def in_execution(guided: Policy) -> tuple[Session, Chunk]:
    """A session that has seen more while its chunk is in execution, with a capsule of that, "seen"."""
    session = Session(guided)
    session.begin("press the red button", seed=1)
    session.observe(observation(guided, 1))
    planned = session.act()
    session.executed(planned.act_index, CURSOR)
    session.observe(observation(guided, 2))
    session.snapshot("seen")
    return session, planned


def test_rows_are_held_less_and_less() -> None:
    assert weights(6, 2, 5).tolist() == pytest.approx([1.0, 1.0, 0.75, 0.5, 0.25, 0.0])
    assert weights(3, 0, 3).tolist() == pytest.approx([0.75, 0.5, 0.25])


def test_a_chunk_goes_on_from_the_planned_one_in_the_robots_units(guided: Policy) -> None:
    session, planned = in_execution(guided)
    follows = session.act(delay=DELAY).actions
    session.restore("seen", Mode.EXACT)
    free = session.act().actions
    still_to_run = planned.actions[CURSOR:]
    missed, apart = (np.abs(chunk[: HORIZON - CURSOR] - still_to_run).mean(axis=1) for chunk in (follows, free))
    assert missed[:DELAY].max() < 0.3 * apart[:DELAY].mean()
    assert missed[0] < missed[HORIZON - CURSOR - 1]
    session.restore("seen", Mode.EXACT)
    assert np.array_equal(session.act(delay=DELAY).actions, follows)
    session.restore("seen", Mode.REOBSERVE)  # the planned chunk is dropped: there is nothing to go on from
    assert np.array_equal(session.act(delay=DELAY).actions, free)


def test_a_chunk_stands_at_the_row_that_it_is_given(guided: Policy) -> None:
    session, planned = in_execution(guided)
    follows = session.act(delay=DELAY).actions
    for cursor in (CURSOR + 2, CURSOR):
        session.restore("seen", Mode.EXACT)
        session.executed(planned.act_index, cursor)
        assert np.array_equal(session.act(delay=DELAY, row=CURSOR).actions, follows)
        session.restore("seen", Mode.EXACT)
        assert np.array_equal(session.act(DELAY, cursor).actions, follows) == (cursor == CURSOR)


@pytest.mark.parametrize("lock", [False, True])
def test_a_chunk_tells_how_many_rows_it_holds(tmp_path: Path, lock: bool) -> None:
    policy = load_policy(write_tiny_pi0(tmp_path, "pi05", prefix_lock=lock, steps=2), device="cpu")
    session, _ = in_execution(policy)
    for asked, held in (
        ((DELAY,), DELAY),
        ((0,), 0),
        ((HORIZON,), HORIZON - CURSOR),
        ((DELAY, HORIZON - 1), 1),
        ((DELAY, HORIZON), None),
        ((), None),
    ):
        session.restore("seen", Mode.EXACT)
        assert session.act(*asked).held == held
    session.restore("seen", Mode.REOBSERVE)
    assert session.act(DELAY, CURSOR).held is None


def test_where_all_rows_have_run_there_is_nothing_to_go_on_from(guided: Policy) -> None:
    session, _ = in_execution(guided)
    free = session.act().actions
    session.restore("seen", Mode.EXACT)
    assert np.array_equal(session.act(DELAY, HORIZON).actions, free)


@pytest.mark.parametrize("mode", ["absolute", "delta"])
def test_a_policy_that_was_trained_so_is_given_the_rows_that_will_have_run(tmp_path: Path, mode: str) -> None:
    policy = load_policy(write_tiny_pi0(tmp_path, "pi05", action_mode=mode, prefix_lock=True, steps=3), device="cpu")
    session = Session(policy)
    session.begin("press the red button", seed=1)
    session.observe(observation(policy, 1))
    planned = session.act().actions
    session.observe(observation(policy, 2))
    session.snapshot("seen")
    follows = session.act(DELAY, CURSOR).actions
    assert follows[:DELAY] == pytest.approx(planned[CURSOR : CURSOR + DELAY], abs=1e-5)
    assert np.abs(follows[DELAY:-CURSOR] - planned[CURSOR + DELAY :]).min() > 1e-3
    session.restore("seen", Mode.EXACT)
    free = session.act().actions
    assert not np.array_equal(follows[DELAY:], free[DELAY:])  # the rows behind go on from those that were given


def test_no_more_rows_are_given_than_it_was_trained_with(tmp_path: Path) -> None:
    folder = write_tiny_pi0(tmp_path, "pi05", steps=2)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rtc_training_max_delay": DELAY - 1}))
    session, _ = in_execution(load_policy(folder, device="cpu"))
    assert session.act(DELAY).held == DELAY - 1


def test_a_recipe_builds_chunks_that_go_on_from_others_again(guided: Policy, tmp_path: Path) -> None:
    session = Session(guided)
    session.begin("press the red button", seed=1)
    for stamp in range(1, 4):
        session.observe(observation(guided, stamp))
        planned = session.act(*((DELAY, CURSOR - 1) if stamp > 1 else ()))
        session.executed(planned.act_index, CURSOR)
    digests = session.digests()
    capsule = session.snapshot("executing").capsule
    folder = CapsuleFolder(tmp_path, 1 << 30)
    folder.write(capsule, guided.plan.buffers, lambda name: False)
    folder.close()
    read = read_capsule(tmp_path / "executing.safetensors", guided.plan.buffers, guided.manifest())
    session.begin("something else", seed=2)
    session.store.add(replace(read, name="foreign", manifest={**read.manifest, "contract": {"sha256": "0"}}))
    assert session.restore("foreign", Mode.EXACT, rebuild=True).rebuilt
    assert session.digests() == digests


def test_what_cannot_be_is_refused(guided: Policy, policy: Policy, refuses) -> None:
    for each, asked, code in (
        (guided, (-1,), ErrorCode.BAD_REQUEST),
        (guided, (0, -1), ErrorCode.BAD_REQUEST),
        (guided, (float("nan"),), ErrorCode.BAD_REQUEST),
        (guided, ("3", 0), ErrorCode.BAD_REQUEST),
        (guided, (2**31, 0), ErrorCode.BAD_REQUEST),
        (guided, (3, 1.5), ErrorCode.BAD_REQUEST),
        (guided, (None, 3), ErrorCode.BAD_REQUEST),
        (guided, (2, HORIZON + 1), ErrorCode.BAD_REQUEST),
        (guided, (2, 99), ErrorCode.BAD_REQUEST),
        (policy, (0,), ErrorCode.NOT_SUPPORTED),
    ):
        session = Session(each)
        session.begin("press the red button")
        session.observe(observation(each, 1))
        before = session.digests()
        with refuses(code, "act: "):
            session.act(*asked)
        assert session.digests() == before
