# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Chunks drawn beside a running session, which must not notice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.policy import sampling
from flashrt_ros.policy.generator import seed_from_key
from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.session import Session
from flashrt_ros.policy.worker import GaveWay, Worker
from flashrt_ros.runtime.buffers import Buffer
from flashrt_ros.runtime.errors import ErrorCode
from flashrt_ros.tools.audit import poison, random_observation


@pytest.fixture(scope="module", params=["append", "starvla"])
def policy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder: Path = tmp_path_factory.mktemp(request.param)
    return load_policy(write_tiny_checkpoint(folder, layout=request.param, max_rows=256, max_instruction_tokens=48))


@pytest.fixture
def seen(policy: Policy) -> list[Observation]:
    rng = np.random.default_rng(3)
    return [random_observation(policy, rng, stamp) for stamp in range(1, 6)]


@pytest.fixture
def session(policy: Policy, seen: list[Observation]) -> Session:
    """One with a chunk planned and half executed."""
    session = Session(policy)
    session.begin("press the red button", seed=7)
    session.observe(seen[0])
    session.executed(session.act().act_index, 3)
    session.observe(seen[1])
    return session


def test_sampling_changes_no_byte_of_the_state_and_nothing_of_the_lineage(session: Session) -> None:
    head, digests, journal = session.head, session.digests(), [e.boundary for e in session.live.journal.entries()]
    assert head is not None
    captures = session.policy.plan.backend.captures
    samples = session.sample([1, 2, 2**64 - 1])
    assert session.digests() == digests
    assert session.head is head
    assert session.head.recipe is head.recipe
    assert [entry.boundary for entry in session.live.journal.entries()] == journal
    assert session.policy.plan.backend.captures == captures
    assert all(np.isfinite(sample.actions).all() for sample in samples)
    assert {sample.boundary.id for sample in samples} == {head.id}


def test_what_follows_is_what_would_have_come_without_sampling(session: Session, seen: list[Observation]) -> None:
    session.snapshot("here")
    expected = [
        session.act().actions.tobytes(),
        session.observe(seen[2]).boundary.kind,
        session.act().actions.tobytes(),
    ]
    session.restore("here")
    session.sample([5, 6])
    poison(session.policy)
    found = [session.act().actions.tobytes(), session.observe(seen[2]).boundary.kind, session.act().actions.tobytes()]
    assert found == expected


def test_the_seed_of_the_session_gives_the_chunk_of_act_and_others_others(session: Session) -> None:
    seed = seed_from_key(int(session.live.plan.buffers["generator"][0]))
    own, other, again = session.sample([seed, seed + 1, seed])
    assert own.actions.tobytes() == again.actions.tobytes() != other.actions.tobytes()
    assert session.act().actions.tobytes() == own.actions.tobytes()


def test_sampling_needs_seeds_and_an_observation(policy: Policy, session: Session, refuses: Callable[..., Any]) -> None:
    for seeds, part in (([], "no seeds"), ([-1], "seed -1"), ([2**64], "unsigned 64-bit")):
        with refuses(ErrorCode.BAD_REQUEST, part):
            session.sample(seeds)
    fresh = Session(policy)
    with refuses(ErrorCode.NOT_BEGUN):
        fresh.sample([1])
    fresh.begin("press the red button")
    with refuses(ErrorCode.NOT_BEGUN):
        fresh.sample([1])


def test_a_nan_is_refused_and_leaves_the_session_as_it_was(session: Session, refuses: Callable[..., Any]) -> None:
    digests, weight = session.digests(), session.policy.plan.buffers["head.decoder2.bias"]
    kept = weight.clone()
    weight.fill_(torch.nan)
    try:
        with refuses(ErrorCode.NOT_FINITE, "actions are not finite"):
            session.sample([1])
    finally:
        weight.copy_(kept)
    assert session.digests() == digests
    assert len(session.sample([1])) == 1


class Interrupting:
    """Raises GaveWay before chosen stages."""

    def __init__(self) -> None:
        self.stages = 0
        self.at: set[int] = set()
        self.urgent = False

    def __call__(self) -> None:
        self.stages += 1
        if self.stages in self.at:
            raise GaveWay(self.urgent)


@pytest.fixture
def interrupting() -> Interrupting:
    return Interrupting()


@pytest.fixture
def interrupted(
    policy: Policy, seen: list[Observation], interrupting: Interrupting, monkeypatch: pytest.MonkeyPatch
) -> Session:
    """One whose chunks always give way: none counts as nearly drawn."""
    monkeypatch.setattr(sampling, "_SHORT", 0.0)
    session = Session(policy, between_stages=interrupting)
    session.begin("press the red button", seed=7)
    session.observe(seen[0])
    return session


def stages_of(session: Session, interrupting: Interrupting) -> tuple[list[bytes], int]:
    """What two seeds give without a break, and the stages that it takes."""
    before = interrupting.stages
    samples = session.sample([1, 2])
    return [sample.actions.tobytes() for sample in samples], interrupting.stages - before


@pytest.mark.parametrize("meanwhile", ["nothing", "executed", "act"])
def test_after_giving_way_it_goes_on_where_it_was_or_begins_the_chunk_anew(
    interrupted: Session, interrupting: Interrupting, meanwhile: str, seen: list[Observation]
) -> None:
    session = interrupted
    session.act()
    expected, count = stages_of(session, interrupting)
    job, before = session.sampling([1, 2]), interrupting.stages
    interrupting.at = {before + count // 2 + 3}
    with pytest.raises(GaveWay):
        job()
    if meanwhile == "executed":
        session.executed(1, 5)
    if meanwhile == "act":
        session.act()
        expected, _ = stages_of(session, interrupting)
    run = interrupting.stages
    assert [sample.actions.tobytes() for sample in job()] == expected
    anew = {"nothing": count // 2 - 2, "executed": count // 2 - 2, "act": count}
    assert interrupting.stages - run == anew[meanwhile]


def test_a_chunk_that_is_nearly_drawn_is_finished_first_and_the_next_one_waits(
    interrupted: Session, interrupting: Interrupting, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, count = stages_of(interrupted, interrupting)
    monkeypatch.setattr(sampling, "_SHORT", 60.0)
    job, before = interrupted.sampling([1, 2]), interrupting.stages
    interrupting.at = {before + 2, before + count // 2 + 1}
    with pytest.raises(GaveWay):
        job()
    assert interrupting.stages - before == count // 2 + 1, "the first chunk should be whole, and the second not begun"
    assert [sample.actions.tobytes() for sample in job()] == expected


def test_a_verb_does_not_wait_for_a_chunk_that_is_nearly_drawn(
    interrupted: Session, interrupting: Interrupting, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, count = stages_of(interrupted, interrupting)
    monkeypatch.setattr(sampling, "_SHORT", 60.0)
    interrupting.urgent, interrupting.at = True, {interrupting.stages + count // 2}
    job = interrupted.sampling([1, 2])
    with pytest.raises(GaveWay):
        job()
    assert interrupting.stages in interrupting.at, "it should have stopped before that very stage"


def test_a_chunk_of_which_nobody_knows_how_long_it_takes_gives_way(
    interrupted: Session, interrupting: Interrupting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "_SHORT", 60.0)
    interrupting.at = {interrupting.stages + 2}
    with pytest.raises(GaveWay):
        interrupted.sample([1])


def test_a_stage_of_another_job_at_the_same_boundary_begins_the_chunk_anew(
    interrupted: Session, interrupting: Interrupting, refuses: Callable[..., Any]
) -> None:
    expected, count = stages_of(interrupted, interrupting)
    job = interrupted.sampling([1, 2])
    interrupting.at = {interrupting.stages + count // 2 + 3}
    with pytest.raises(GaveWay):
        job()
    interrupted.sample([9])
    poison(interrupted.policy)
    assert [sample.actions.tobytes() for sample in job()] == expected


def test_a_head_that_never_rests_is_busy(
    interrupted: Session, interrupting: Interrupting, refuses: Callable[..., Any]
) -> None:
    job = interrupted.sampling([1, 2])
    with refuses(ErrorCode.BUSY, "20 times", "ask for fewer"):
        for _ in range(100):
            interrupting.at = {interrupting.stages + 2}
            with pytest.raises(GaveWay):
                job()
            interrupted.act()
            interrupted.restore("episode_start")
            interrupted.observe(random_observation(interrupted.policy, np.random.default_rng(1), 9))


def test_no_state_is_declared_for_it(policy: Policy) -> None:
    kinds = {spec.name: spec.kind for spec in policy.model.buffers() if isinstance(spec, Buffer)}
    assert (kinds["sample_generator"], kinds["sampled"]) == ("input", "output")


def test_on_the_device_thread_verbs_come_first_and_cancel_nothing(policy: Policy, seen: list[Observation]) -> None:
    worker, stage, asked = Worker(), threading.Event(), threading.Event()

    def between_stages() -> None:
        stage.set()
        assert asked.wait(10)
        worker.between_stages()

    asked.set()
    session = Session(policy, between_stages=between_stages)
    try:
        worker.submit(lambda: session.begin("press the red button", seed=7)).result(10)
        worker.submit(lambda: session.observe(seen[0])).result(10)
        alone = worker.submit_idle(session.sampling([1])).result(10)
        stage.clear()
        asked.clear()
        many = worker.submit_idle(session.sampling([0, 1]))
        assert stage.wait(10)
        verb = worker.preempt(lambda: (session.snapshot("meanwhile").capsule, many.done()))
        asked.set()
        capsule, has_waited = verb.result(10)
        assert capsule is not None
        assert not has_waited, "the verb has waited for the samples"
        samples = many.result(20)
        assert samples[1].actions.tobytes() == alone[0].actions.tobytes()
    finally:
        worker.close()
