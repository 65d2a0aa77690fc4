# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a policy says, as a verb of its session: with and without an MTP layer, in both prompt layouts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.session import Mode, Session
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.tools.audit import poison, random_observation

INSTRUCTION = "press the red button"
TURN = "<|im_start|>assistant\n"
KINDS = {
    "append": {},
    "append, MTP": {"mtp": True},
    "append, MTP, three drafts": {"mtp": True, "drafts": 3},
    "starvla, MTP": {"mtp": True, "layout": "starvla"},
}


@pytest.fixture(scope="module", params=KINDS)
def policy(
    request: pytest.FixtureRequest, talkative: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Policy:
    folder = tmp_path_factory.mktemp("talkative")
    options = {"mtp": False, "max_rows": 256, "max_instruction_tokens": 48, **KINDS[request.param]}
    return load_policy(talkative(folder, 3, **options))


with_mtp = pytest.mark.parametrize("policy", ["append, MTP", "starvla, MTP"], indirect=True)


@pytest.fixture
def seen(policy: Policy) -> list[Observation]:
    rng = np.random.default_rng(3)
    return [random_observation(policy, rng, stamp) for stamp in range(1, 8)]


@pytest.fixture
def session(policy: Policy, seen: list[Observation]) -> Session:
    """A session that has seen something."""
    session = Session(policy)
    session.begin(INSTRUCTION, seed=7)
    session.observe(seen[0])
    return session


def go_on(session: Session, seen: list[Observation]) -> list[object]:
    """Say, observe, say and act: what came out, and the state behind it."""
    first = session.say(20, stop=("<|im_end|>", "a"), prompt=TURN, closing="\n")
    session.observe(seen[1])
    second = session.say(7)
    chunk = session.act().actions.tobytes()
    return [first.tokens, first.steps, second.tokens, second.steps, chunk, session.digests()]


def test_a_boundary_between_texts_continues_byte_for_byte(session: Session, seen: list[Observation]) -> None:
    session.say(11)
    session.snapshot("told")
    captures = session.policy.plan.backend.captures
    original = go_on(session, seen)
    session.begin("something else entirely", seed=1)
    session.observe(seen[4])
    session.say(30)
    session.restore("told", Mode.EXACT)
    poison(session.policy)
    assert go_on(session, seen) == original
    assert session.policy.plan.backend.captures == captures


def test_drafts_hold_at_times_and_change_nothing_that_is_said(session: Session) -> None:
    session.snapshot("before")
    ahead = session.say(40, stop=())
    session.restore("before")
    plain = session.say(40, stop=(), speculate=False)
    assert ahead.tokens == plain.tokens
    assert set(plain.steps) == {1}
    has_drafts = session.policy.model.speech.rows > 1
    assert min(ahead.steps) == 1
    assert (max(ahead.steps) > 1) == has_drafts


def test_a_text_is_a_boundary_of_the_lineage(session: Session, seen: list[Observation]) -> None:
    before, position = session.digests(), session.head.cursors["position"]
    said = session.say(9, stop=(), prompt=TURN)
    assert session.head is said.boundary
    assert said.boundary.kind == "say"
    assert said.boundary.cursors["position"] == position + len(session.policy.processor.tokenizer.encode(TURN)) + 9
    assert int(session.policy.plan.buffers["position"]) == said.boundary.cursors["position"]
    after = session.digests()
    session.say(5)
    session.rollback(1, Mode.EXACT)
    assert session.digests() == after
    session.rollback(1, Mode.EXACT)
    assert session.digests() == before
    assert session.say(9, stop=(), prompt=TURN).tokens == said.tokens
    assert session.digests() == after


def test_a_text_that_ended_early_leaves_the_cursor_at_its_end(session: Session) -> None:
    position = session.head.cursors["position"]
    session.snapshot("before")
    said = session.say(40, stop=())
    session.restore("before")
    letter = session.policy.processor.tokenizer.decode(said.tokens[7:8])
    ended = session.say(40, stop=(letter,))
    assert ended.ended
    assert not said.ended
    assert ended.tokens == said.tokens[: said.tokens.index(said.tokens[7]) + 1]
    assert ended.text == said.text[: len(ended.tokens)]
    assert ended.boundary.cursors["position"] == position + len(ended.tokens)
    assert int(session.policy.plan.buffers["position"]) == position + len(ended.tokens)
    session.restore("before")
    assert session.say(40, stop=()).steps == said.steps


def test_what_closes_a_turn_follows_the_stop_alone(session: Session) -> None:
    session.snapshot("before")
    position, b = session.head.cursors["position"], session.policy.plan.buffers
    cut = session.say(3, stop=(), closing="\n\n")
    assert cut.boundary.cursors["position"] == position + 3
    session.restore("before")
    letter = session.policy.processor.tokenizer.decode(cut.tokens[:1])
    ended = session.say(3, stop=(letter,), prompt="", closing="\n\n")
    assert ended.tokens == cut.tokens[:1]
    assert ended.boundary.cursors["position"] == int(b["position"]) == position + 3
    assert int(b["condition_rows"]) == 3
    newest = b["condition"][:3].clone()
    session.restore("before")
    session.say(1, stop=())
    np.testing.assert_allclose(b["condition"][:1].numpy(), newest[:1].numpy(), atol=1e-4)
    session.say(1, stop=(), prompt="\n\n")
    np.testing.assert_allclose(b["condition"][:2].numpy(), newest[1:].numpy(), atol=1e-4)


def test_a_recipe_says_it_again(session: Session, seen: list[Observation]) -> None:
    session.say(9, prompt=TURN)
    session.act()
    session.say(4, stop=(), speculate=False)
    session.snapshot("ours")
    original = go_on(session, seen)
    capsule = session.store.drop("ours")
    numerics = {**capsule.manifest["numerics"], "device": "another"}
    session.store.add(replace(capsule, manifest={**capsule.manifest, "numerics": numerics}))
    assert session.restore("ours", Mode.EXACT, rebuild=True).rebuilt
    assert go_on(session, seen) == original


@with_mtp
@pytest.mark.parametrize("name", ["mtp.key", "mtp.value"])
def test_what_is_drafted_depends_on_each_buffer_of_the_mtp_layer(session: Session, name: str) -> None:
    session.snapshot("before")
    original = session.say(60, stop=())
    session.restore("before")
    session.policy.plan.buffers[name].zero_()
    changed = session.say(60, stop=())
    assert changed.tokens == original.tokens
    assert changed.steps != original.steps


def test_the_next_chunk_is_conditioned_on_the_text(session: Session) -> None:
    session.snapshot("before")
    rows = int(session.policy.plan.buffers["condition_rows"])
    unsaid = session.act().actions.tobytes()
    session.restore("before")
    session.say(5, stop=())
    assert int(session.policy.plan.buffers["condition_rows"]) == 5 != rows
    assert session.act().actions.tobytes() != unsaid


def test_a_full_context_is_compacted_before_something_is_said(session: Session) -> None:
    kinds = []
    for _ in range(5):
        position = session.head.cursors["position"]
        said = session.say(60, stop=())
        kinds.append(said.boundary.cursors["position"] == position + 60)
        assert said.boundary.cursors["position"] <= session.policy.model.max_rows
    assert set(kinds) == {True, False}
    after = session.digests()
    session.rollback(1, Mode.EXACT)
    session.say(60, stop=())
    assert session.digests() == after


def test_canceled_between_any_two_steps_nothing_has_been_said(policy: Policy, seen: list[Observation]) -> None:
    stages, limit = itertools.count(), [10**9]

    def count_down() -> None:
        if next(stages) == limit[0]:
            raise FlashrtError(ErrorCode.CANCELED, "stop")

    session = Session(policy, between_stages=count_down)
    session.begin(INSTRUCTION, seed=7)
    session.observe(seen[0])
    before, head = session.digests(), session.head
    for number in range(4):
        limit[0] = next(stages) + 1 + number
        with pytest.raises(FlashrtError, match="stop"):
            session.say(20, stop=())
        assert session.digests() == before
        assert session.head is head
    assert len(session.say(20, stop=()).tokens) == 20


BAD = ErrorCode.BAD_REQUEST
REFUSALS: dict[str, tuple[ErrorCode, str, Callable[[Session], object]]] = {
    "nothing": (BAD, "max_tokens 0; give an int, 1 or more", lambda s: s.say(0)),
    "half a token": (BAD, r"max_tokens 3\.5; give an int", lambda s: s.say(3.5)),
    "a number of an array": (BAD, "give an int", lambda s: s.say(np.int64(3))),
    "letters of a text": (BAD, "stop 'end' is one text", lambda s: s.say(4, stop="end")),
    "no text": (BAD, "5 is no text", lambda s: s.say(4, stop=(5,))),
    "half a character": (BAD, r"'\\ud800' is no text", lambda s: s.say(4, prompt="\ud800")),
    "no token": (BAD, "stop 'end' is 3 tokens", lambda s: s.say(4, stop=("end",))),
    "many stops": (BAD, "9 stops; give 8 at most", lambda s: s.say(4, stop=tuple("abcdefghi"))),
    "an image": (BAD, r"image_pad\|>' holds what stands for an image", lambda s: s.say(4, prompt="at <|image_pad|>")),
    "an image's end": (BAD, "what stands for an image", lambda s: s.say(4, closing="<|vision_end|>")),
    "more than the head can see": (BAD, "has room for 192", lambda s: s.say(190, prompt=TURN)),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_text_leaves_the_live_state(session: Session, name: str) -> None:
    code, message, verb = REFUSALS[name]
    before, head = session.digests(), session.head
    with pytest.raises(FlashrtError, match=message) as refused:
        verb(session)
    assert refused.value.code is code
    assert session.digests() == before
    assert session.head is head


def test_it_needs_an_episode(policy: Policy) -> None:
    with pytest.raises(FlashrtError) as refused:
        Session(policy).say(4)
    assert refused.value.code is ErrorCode.NOT_BEGUN
