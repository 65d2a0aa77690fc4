# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""pi0 and pi0.5 under the verbs of a session."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flashrt_ros.models.tiny_pi0 import ACTIONS, STATE, write_tiny_pi0
from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.session import Mode, Session
from flashrt_ros.policy.store import CapsuleStore
from flashrt_ros.runtime.errors import ErrorCode
from flashrt_ros.runtime.plan import Plan
from flashrt_ros.tools.audit import audit, random_observation

INSTRUCTION = "press the red button"


@pytest.fixture(scope="module", params=["pi0", "pi05", "pi0 fp8"])
def policy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Policy:
    kind, _, weights = request.param.partition(" ")
    folder = write_tiny_pi0(tmp_path_factory.mktemp(kind), kind, steps=3)
    return load_policy(folder, device="cpu", views=["base_0_rgb"], weights=weights or "auto")


def seen(policy: Policy, seed: int) -> Observation:
    return random_observation(policy, np.random.default_rng(seed), stamp=seed)


def test_the_state_is_closed(policy: Policy) -> None:
    captures = policy.plan.backend.captures
    result = audit(policy)
    assert result.closed, (result.differing, [found for found in result.findings if not found.noticed])
    assert result.captures == captures
    noticed = {found.name: found.noticed for found in result.findings}
    unread = {"previous_chunk", "previous_reference", "history_images", "history_proprio", "measured", "reference"}
    assert {name for name, how in noticed.items() if how != "output"} == unread
    assert {noticed[name] for name in unread} == {"bytes"}
    assert set(noticed) - unread >= {f"cache.{layer}.{part}" for layer in range(3) for part in ("key", "value")}
    assert set(noticed) - unread >= {"position", "generator", "chunk", "plan", "instruction", "history_count"}


@pytest.mark.parametrize("left_out", ["chunk", "plan"])
def test_a_chunk_that_goes_on_needs_the_one_before_it(policy: Policy, left_out: str) -> None:
    session, b = Session(policy), policy.plan.buffers
    session.begin(INSTRUCTION, seed=7)
    session.observe(seen(policy, 1))
    session.executed(session.act().act_index, 4)
    session.observe(seen(policy, 2))
    session.snapshot("seen")
    follows = session.act(delay=2).actions

    def again(spoiled: bool) -> np.ndarray:
        session.restore("seen", Mode.EXACT)
        if spoiled:
            b[left_out].zero_()
        return session.act(delay=2).actions

    assert np.array_equal(again(spoiled=False), follows)
    assert not np.array_equal(again(spoiled=True), follows)


def test_every_way_back_to_a_boundary_brings_its_bytes_and_what_follows(policy: Policy) -> None:
    session = Session(policy)
    session.begin(INSTRUCTION, seed=7)
    session.observe(seen(policy, 1))
    session.executed(session.act().act_index, 4)
    session.snapshot("acted")
    session.fork("branch", "another try")

    def go_on() -> list[object]:
        actions = [session.act(delay=2).actions.tobytes()]
        session.observe(seen(policy, 2))
        actions.append(session.act(delay=2).actions.tobytes())
        return [actions, session.digests()]

    before, after = session.digests(), go_on()
    for back in (
        lambda: session.restore("acted", Mode.EXACT),
        lambda: session.restore("branch", Mode.EXACT),
        lambda: session.rollback(3, Mode.EXACT),
    ):
        back()
        assert session.digests() == before
        assert go_on() == after
    session.begin("pick up the green cube", seed=1)
    session.observe(seen(policy, 3))
    session.restore("acted", Mode.EXACT)
    assert session.digests() == before
    assert go_on() == after


def test_a_restored_boundary_gives_the_same_bytes_and_another_seed_what_a_cold_run_gives(policy: Policy) -> None:
    session = Session(policy)
    session.begin(INSTRUCTION, seed=7)
    session.observe(seen(policy, 1))
    session.snapshot("seen")
    first = session.act()
    session.observe(seen(policy, 2))
    session.act()
    session.restore("seen")
    assert np.array_equal(session.act().actions, first.actions)
    assert first.actions.shape == (10, len(ACTIONS))
    session.restore("seen", Mode.REOBSERVE)
    session.reseed(8)
    other = session.act().actions
    cold = Session(policy)
    cold.begin(INSTRUCTION, seed=8)
    cold.observe(seen(policy, 1))
    assert np.array_equal(cold.act().actions, other)
    assert not np.array_equal(other, first.actions)


def test_samples_leave_the_session_as_it_was_and_are_what_act_would_give(policy: Policy) -> None:
    session = Session(policy)
    session.begin(INSTRUCTION, seed=7)
    session.observe(seen(policy, 1))
    before = session.digests()
    samples = session.sample([7, 8])
    assert session.digests() == before
    assert np.array_equal(session.act().actions, samples[0].actions)
    assert not np.array_equal(samples[0].actions, samples[1].actions)


def test_an_overwritten_prefix_comes_back(policy: Policy) -> None:
    session = Session(policy)
    session.begin(INSTRUCTION, seed=7)
    session.observe(seen(policy, 1))
    digests = session.digests()
    session.instruct("pick up the green cube")
    session.observe(seen(policy, 2))
    session.rollback(2)
    assert session.digests() == digests


def test_the_start_of_an_episode_holds_no_rows_and_says_so(policy: Policy) -> None:
    report = Session(policy).begin(INSTRUCTION)
    assert report.prefilled_tokens == 0
    assert "holds no rows" in report.note


def test_prompts_of_every_length_capture_nothing_anew(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    session, captures = Session(policy, journal_bytes=1), policy.plan.backend.captures
    session.begin(INSTRUCTION)
    images, rows, stages, real = seen(policy, 0).images, set(), set(), Plan.run
    monkeypatch.setattr(Plan, "run", lambda plan, step: (stages.add(step.stage), real(plan, step)))
    for stamp in range(100):
        # The larger a number is, the more digits the prompt has.
        state = np.random.default_rng(stamp).uniform(-1.0, -0.9 + 0.025 * stamp, len(STATE))
        rows.add(session.observe(Observation(images, state, stamp)).prefilled_tokens)
    assert policy.plan.backend.captures == captures
    assert (len(rows) > 10) == policy.model.config.adaptive
    assert ({"prefix_32", "prefix_64"} <= stages) == policy.model.config.adaptive


def test_an_episode_that_cannot_begin_leaves_the_one_that_runs(policy: Policy, refuses: Any) -> None:
    """A start holds no rows, so that none of the running episode's have been overwritten."""
    session = Session(policy)
    session.begin(INSTRUCTION, seed=7)
    (start,) = session.store.list()
    session = Session(policy, CapsuleStore(start.nbytes * 3 // 2))
    session.begin(INSTRUCTION, seed=7)
    session.store.pin(start.name, False)
    session.store.drop(start.name)
    session.snapshot("kept", pinned=True)
    session.observe(seen(policy, 1))
    session.act()
    before, head = session.digests(), session.head
    with refuses(ErrorCode.OVER_BUDGET, "episode_start"):
        session.begin("something else", seed=8)
    assert session.digests() == before
    assert session.head is head
