# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Several verbs that are one, and what a recipe may grow to."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from flashrt_ros.policy.episode import EVENTS_AN_OBSERVATION
from flashrt_ros.policy.loading import Policy
from flashrt_ros.policy.replay_record import Done
from flashrt_ros.policy.replay_session import RecordedSession
from flashrt_ros.policy.session import Session
from flashrt_ros.runtime.errors import ErrorCode
from flashrt_ros.tools.audit import random_observation


@pytest.fixture
def told() -> list[Done]:
    return []


@pytest.fixture
def session(policy: Policy, told: list[Done]) -> Session:
    listener = SimpleNamespace(done=told.append, state_wanted=lambda: False)
    session = RecordedSession(policy, listener=listener)
    rng = np.random.default_rng(3)
    session.begin("press the red button", seed=7)
    session.observe(random_observation(policy, rng, 1))
    session.snapshot("before")
    session.observe(random_observation(policy, rng, 2))
    session.act()
    return session


def replan(session: Session) -> None:
    with session.together():
        session.restore("before")
        session.instruct("press the blue one")
        session.retry(2)


def test_verbs_together_end_where_they_end_one_by_one(session: Session, told: list[Done]) -> None:
    session.restore("before")
    session.instruct("press the blue one")
    session.retry(2)
    expected, count = session.digests(), len(told)
    heads: list[Any] = []
    session.on_head = heads.append
    replan(session)
    assert session.digests() == expected
    assert heads == [session.head]
    assert [done.record.verb for done in told[count:]] == ["restore", "instruct", "retry"]
    numbers = [done.record.sequence for done in told]
    assert numbers == sorted(set(numbers))


def test_what_fails_among_verbs_together_leaves_no_trace_of_those_before(
    session: Session, told: list[Done], refuses: Callable[..., Any]
) -> None:
    head, digests, count = session.head, session.digests(), len(told)
    weight = session.policy.plan.buffers["embed_tokens"]
    kept = weight.clone()
    weight.fill_(torch.nan)
    try:
        with refuses(ErrorCode.NOT_FINITE):
            replan(session)
    finally:
        weight.copy_(kept)
    assert session.head is not None
    assert head is not None
    assert session.head.id == head.id
    assert session.digests() == digests
    assert told[count:] == []
    session.rollback(1)
    replan(session)


def test_a_snapshot_between_their_stages_is_of_what_was_before(policy: Policy, session: Session) -> None:
    head, taken = session.head, []
    with session.together():
        session.restore("before")
        taken.append(session.snapshot("meanwhile").boundary)
        session.instruct("press the blue one")
    assert taken == [head]


@pytest.mark.parametrize(
    "verb",
    [lambda session: session.act(), lambda session: session.retry(1), lambda session: session.instruct("again")],
    ids=["act", "retry", "instruct"],
)
def test_what_follows_an_observation_is_bounded(
    policy: Policy, session: Session, verb: Callable[[Session], object], refuses: Callable[..., Any]
) -> None:
    head = session.head
    assert head is not None
    for _ in range(EVENTS_AN_OBSERVATION - head.recipe.events_since_observation()):
        session.retry(1)
    digests = session.digests()
    with refuses(ErrorCode.BAD_REQUEST, "256 inputs follow the newest observation"):
        verb(session)
    assert session.digests() == digests
    session.observe(random_observation(policy, np.random.default_rng(4), 3))
    verb(session)


def test_a_plan_is_dropped_once_in_the_recipe(session: Session) -> None:
    session.discard_plan()
    assert session.head is not None
    recipe = session.head.recipe
    for _ in range(3):
        session.discard_plan()
    assert session.head.recipe is recipe
