# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The session's verbs on a tiny policy with random weights, in both prompt layouts."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.session import Mode, Session
from flashrt_ros.policy.store import CapsuleStore
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.tools.audit import poison, random_observation

INSTRUCTION = "press the red button"


@pytest.fixture(scope="module", params=["append", "starvla"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param) / "checkpoint"
    return write_tiny_checkpoint(folder, layout=request.param, max_rows=256, max_instruction_tokens=48)


append_only = pytest.mark.parametrize("checkpoint", ["append"], indirect=True)
"""For what a turn that each observation rewrites does not have: a context that grows until it is full."""


@pytest.fixture(scope="module")
def policy(checkpoint: Path) -> Policy:
    return load_policy(checkpoint)


@pytest.fixture(scope="module")
def seen(policy: Policy) -> list[Observation]:
    rng = np.random.default_rng(3)
    return [random_observation(policy, rng, stamp) for stamp in range(1, 30)]


@pytest.fixture
def session(policy: Policy) -> Session:
    return Session(policy)


def run(session: Session, observations: list[Observation]) -> list[bytes]:
    """Observe and act on each; the chunks and, last, the digests."""
    chunks = []
    for observation in observations:
        session.observe(observation)
        chunk = session.act()
        session.executed(chunk.act_index, 3)
        chunks.append(chunk.actions.tobytes())
    return [*chunks, repr(session.digests()).encode()]


def test_a_restored_boundary_continues_byte_for_byte(session: Session, seen: list[Observation]) -> None:
    session.begin(INSTRUCTION, seed=7)
    run(session, seen[:2])
    session.snapshot("before")
    original = run(session, seen[2:5])
    session.begin("something else entirely", seed=1)
    run(session, seen[5:7])
    poison(session.policy)
    report = session.restore("before", Mode.EXACT)
    assert report.prefilled_tokens == 0
    assert run(session, seen[2:5]) == original


def test_restore_then_append_equals_the_same_segments_run_cold(policy: Policy, seen: list[Observation]) -> None:
    cold, restored = Session(policy), Session(policy)
    cold.begin(INSTRUCTION, seed=7)
    cold.instruct("then the blue one")
    expected = run(cold, seen[:2])
    restored.begin(INSTRUCTION, seed=7)
    run(restored, seen[4:6])
    restored.restore("episode_start", Mode.EXACT)
    restored.instruct("then the blue one")
    assert run(restored, seen[:2]) == expected


def test_another_process_makes_the_same_bytes(checkpoint: Path, session: Session, seen: list[Observation]) -> None:
    session.begin(INSTRUCTION, seed=7)
    expected = run(session, seen[:2])[-1].decode()
    script = (
        "import numpy as np, sys\n"
        "from flashrt_ros.policy.loading import load_policy\n"
        "from flashrt_ros.policy.session import Session\n"
        "from flashrt_ros.tools.audit import random_observation\n"
        "policy = load_policy(sys.argv[1]); rng = np.random.default_rng(3); session = Session(policy)\n"
        "seen = [random_observation(policy, rng, stamp) for stamp in (1, 2)]\n"
        f"session.begin({INSTRUCTION!r}, seed=7)\n"
        "for observation in seen:\n"
        "    session.observe(observation); chunk = session.act(); session.executed(chunk.act_index, 3)\n"
        "print(repr(session.digests()))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(checkpoint)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_two_forks_continue_differently_and_rightly(session: Session, seen: list[Observation]) -> None:
    session.begin(INSTRUCTION, seed=7)
    run(session, seen[:1])
    session.fork("left", "try left")
    session.fork("right", "try right")
    kept = session.find("left").sha256(session.policy.plan.buffers)
    session.restore("left")
    left = run(session, seen[1:4])
    session.restore("right")
    session.retry(1)
    right = run(session, seen[1:4])
    session.restore("left")
    assert run(session, seen[1:4]) == left
    assert all(a != b for a, b in zip(left, right, strict=True))
    assert session.find("left").sha256(session.policy.plan.buffers) == kept


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_rollback_returns_to_the_very_bytes(session: Session, seen: list[Observation], steps: int) -> None:
    session.begin(INSTRUCTION, seed=7)
    boundaries = [session.digests()]
    for observation in seen[:2]:
        session.observe(observation)
        boundaries.append(session.digests())
        session.act()
        boundaries.append(session.digests())
    session.rollback(steps, Mode.EXACT)
    assert session.digests() == boundaries[-1 - steps]
    if session.policy.model.config.layout == "append":
        session.rollback(1, Mode.EXACT)
        assert session.digests() == boundaries[-2 - steps]


@append_only
def test_rollback_copies_the_same_few_bytes_at_any_length(session: Session, seen: list[Observation]) -> None:
    session.begin(INSTRUCTION, seed=7)
    copied = []
    for observation in seen[:4]:
        session.observe(observation)
        session.observe(observation)
        copied.append(session.rollback(1).bytes_copied)
    assert len(set(copied)) == 1
    assert copied[0] < session.policy.plan.buffers.small_ranges()[0].nbytes * 1.5


def fill_until_compaction(session: Session, seen: list[Observation]) -> tuple[int, list[dict[str, str]]]:
    """Observe until the context was compacted; the digests before each observation."""
    before = []
    for observation in itertools.cycle(seen):
        before.append(session.digests())
        if session.observe(observation).note:
            return len(before), before
    raise AssertionError


@append_only
def test_rollback_goes_back_across_a_compaction(session: Session, seen: list[Observation]) -> None:
    session.begin(INSTRUCTION, seed=7)
    _, before = fill_until_compaction(session, seen)
    session.rollback(2, Mode.EXACT)
    assert session.digests() == before[-1]
    session.rollback(3, Mode.EXACT)
    assert session.digests() == before[-4]


@append_only
def test_compaction_does_not_depend_on_what_is_kept(policy: Policy, seen: list[Observation]) -> None:
    kept, dropped = Session(policy), Session(policy)
    results = []
    for session in (kept, dropped):
        session.begin(INSTRUCTION, seed=7)
        if session is dropped:
            start = session.find("episode_start").name
            session.store.pin(start, False)
            session.store.drop(start)
        fill_until_compaction(session, seen)
        results.append(run(session, seen[:1]))
    assert results[0] == results[1]


def test_captures_stay_over_prompts_positions_and_seeds(session: Session, seen: list[Observation]) -> None:
    captures = session.policy.plan.backend.captures
    rng = np.random.default_rng(0)
    for number in range(100):
        session.begin("go " + "x" * int(rng.integers(0, 40)), seed=int(rng.integers(0, 2**63)))
        session.observe(seen[number % len(seen)])
        if number % 10 == 0:
            session.act()
    assert session.policy.plan.backend.captures == captures


def test_seeds_and_the_restored_generator(session: Session, seen: list[Observation]) -> None:
    def two_chunks(seed: int) -> list[bytes]:
        session.begin(INSTRUCTION, seed=seed)
        session.observe(seen[0])
        first = session.act()
        session.snapshot(f"after first {seed}".replace(" ", "-"))
        return [first.actions.tobytes(), session.act().actions.tobytes()]

    first = two_chunks(7)
    assert first[0] != first[1]
    session.store.drop("after-first-7")
    assert two_chunks(7) == first
    assert two_chunks(8)[0] != first[0]
    session.restore("after-first-7")
    assert session.act().actions.tobytes() == first[1]


def test_exact_takes_the_plan_up_again_and_reobserve_drops_it(session: Session, seen: list[Observation]) -> None:
    session.begin(INSTRUCTION)
    session.observe(seen[0])
    chunk = session.act()
    session.executed(chunk.act_index, 5)
    session.snapshot("planned")
    session.restore("planned", Mode.EXACT)
    planned = session.planned()
    assert planned is not None
    assert planned.start == 5
    assert planned.actions.tobytes() == chunk.actions.tobytes()
    session.restore("planned", Mode.REOBSERVE)
    assert session.planned() is None


def test_a_reset_is_a_cold_start_without_prefilling(policy: Policy, seen: list[Observation]) -> None:
    cold, session = Session(policy), Session(policy)
    cold.begin(INSTRUCTION, seed=9)
    expected = run(cold, seen[:2])
    first = session.begin(INSTRUCTION, seed=1)
    run(session, seen[3:5])
    report = session.reset(seed=9)
    assert report.prefilled_tokens == 0
    assert first.prefilled_tokens == (
        0 if policy.model.config.layout == "starvla" else first.boundary.cursors["position"]
    )
    assert run(session, seen[:2]) == expected


def test_a_foreign_capsule_is_rebuilt_from_its_recipe_on_request(session: Session, seen: list[Observation]) -> None:
    session.begin(INSTRUCTION, seed=7)
    run(session, seen[:2])
    session.snapshot("ours")
    original = run(session, seen[2:4])
    capsule = session.store.drop("ours")
    foreign = {**capsule.manifest, "numerics": {**capsule.manifest["numerics"], "device": "another"}}
    session.store.add(replace(capsule, manifest=foreign))
    before = session.digests()
    with pytest.raises(FlashrtError, match=r"numerics.device: expected .*, found another") as refused:
        session.restore("ours")
    assert refused.value.code is ErrorCode.MANIFEST_MISMATCH
    assert session.digests() == before
    report = session.restore("ours", Mode.EXACT, rebuild=True)
    assert report.rebuilt
    assert report.prefilled_tokens > 0
    assert "recipe" in report.note
    assert run(session, seen[2:4]) == original


REFUSALS: dict[str, tuple[ErrorCode, Callable[[Session, Observation], object]]] = {
    "unknown capsule": (ErrorCode.UNKNOWN_CAPSULE, lambda s, o: s.restore("nowhere")),
    "badly named": (ErrorCode.BAD_NAME, lambda s, o: s.snapshot("../escape")),
    "named by a number": (ErrorCode.BAD_NAME, lambda s, o: s.snapshot(5)),
    "badly named restore": (ErrorCode.BAD_NAME, lambda s, o: s.restore("")),
    "duplicate": (ErrorCode.DUPLICATE_NAME, lambda s, o: s.snapshot("kept")),
    "reserved": (ErrorCode.DUPLICATE_NAME, lambda s, o: s.snapshot("episode_start")),
    "unknown mode": (ErrorCode.BAD_REQUEST, lambda s, o: s.restore("kept", 7)),
    "long label": (ErrorCode.BAD_REQUEST, lambda s, o: s.fork("branch", "x" * 300)),
    "cursor behind the chunk": (ErrorCode.BAD_REQUEST, lambda s, o: s.executed(1, 10**6)),
    "negative cursor": (ErrorCode.BAD_REQUEST, lambda s, o: s.executed(1, -5)),
    "state beyond float32": (
        ErrorCode.BAD_OBSERVATION,
        lambda s, o: s.observe(replace(o, state=np.full_like(o.state, 1e300))),
    ),
    "no label": (ErrorCode.BAD_REQUEST, lambda s, o: s.fork("branch", "")),
    "rollback by a half": (ErrorCode.BAD_REQUEST, lambda s, o: s.rollback(0.5)),
    "rollback by nothing": (ErrorCode.BAD_REQUEST, lambda s, o: s.rollback(0)),
    "rollback too far": (ErrorCode.BAD_REQUEST, lambda s, o: s.rollback(50)),
    "empty instruction": (ErrorCode.BAD_INSTRUCTION, lambda s, o: s.begin("  ")),
    "long instruction": (ErrorCode.BAD_INSTRUCTION, lambda s, o: s.instruct("x" * 5000)),
    "no instruction": (ErrorCode.BAD_INSTRUCTION, lambda s, o: s.instruct(5)),
    "seed": (ErrorCode.BAD_REQUEST, lambda s, o: s.begin("go", seed=-1)),
    "seed of numpy, which no capsule holds": (ErrorCode.BAD_REQUEST, lambda s, o: s.reseed(np.int64(5))),
    "cursor of numpy": (ErrorCode.BAD_REQUEST, lambda s, o: s.executed(1, np.int64(5))),
    "retry below none": (ErrorCode.BAD_REQUEST, lambda s, o: s.begin("go", retry=-1)),
    "retry of a word": (ErrorCode.BAD_REQUEST, lambda s, o: s.retry("1")),
    "state with NaN": (
        ErrorCode.BAD_OBSERVATION,
        lambda s, o: s.observe(replace(o, state=np.full_like(o.state, np.nan))),
    ),
    "short state": (ErrorCode.BAD_OBSERVATION, lambda s, o: s.observe(replace(o, state=o.state[:-1]))),
    "missing view": (ErrorCode.BAD_OBSERVATION, lambda s, o: s.observe(replace(o, images={}))),
    "image of wrong type": (
        ErrorCode.BAD_OBSERVATION,
        lambda s, o: s.observe(replace(o, images={k: v.astype(np.float32) for k, v in o.images.items()})),
    ),
    "image of wrong shape": (
        ErrorCode.BAD_OBSERVATION,
        lambda s, o: s.observe(replace(o, images={k: v[..., 0] for k, v in o.images.items()})),
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_verb_leaves_the_live_state(session: Session, seen: list[Observation], name: str) -> None:
    code, verb = REFUSALS[name]
    session.begin(INSTRUCTION, seed=7)
    run(session, seen[:1])
    session.snapshot("kept")
    before, head = session.digests(), session.head
    with pytest.raises(FlashrtError) as refused:
        verb(session, seen[1])
    assert refused.value.code is code, refused.value
    assert session.digests() == before
    assert session.head is head


def test_verbs_before_begin_say_so(session: Session, seen: list[Observation]) -> None:
    for verb in (
        lambda: session.observe(seen[0]),
        session.act,
        lambda: session.snapshot("early"),
        lambda: session.rollback(1),
        session.reset,
        lambda: session.restore("episode_start"),
    ):
        with pytest.raises(FlashrtError) as refused:
            verb()
        assert refused.value.code is ErrorCode.NOT_BEGUN


def test_act_needs_an_observation(session: Session) -> None:
    session.begin(INSTRUCTION)
    with pytest.raises(FlashrtError, match="call observe first"):
        session.act()


def test_an_evicted_capsule_says_so(policy: Policy, seen: list[Observation]) -> None:
    sizing = Session(policy)
    sizing.begin(INSTRUCTION)
    nbytes = sizing.snapshot("size").bytes_copied
    session = Session(policy, CapsuleStore(budget_bytes=4 * nbytes))
    session.begin(INSTRUCTION)
    for name in "abcd":
        session.snapshot(name)
    with pytest.raises(FlashrtError) as refused:
        session.restore("a")
    assert refused.value.code is ErrorCode.EVICTED
    assert session.restore("episode_start").prefilled_tokens == 0


def test_a_nan_in_a_stage_leaves_the_last_boundary(session: Session, seen: list[Observation]) -> None:
    session.begin(INSTRUCTION, seed=7)
    run(session, seen[:2])
    session.snapshot("whole")
    before, head = session.digests(), session.head
    embedding = session.policy.plan.buffers["embed_tokens"]
    kept = embedding.clone()
    embedding.fill_(torch.nan)
    with pytest.raises(FlashrtError, match="hidden states are not finite") as failed:
        session.observe(seen[2])
    embedding.copy_(kept)
    assert failed.value.code is ErrorCode.NOT_FINITE
    assert session.digests() == before
    assert session.head is head
    expected = run(session, seen[2:4])
    session.restore("whole", Mode.EXACT)
    assert run(session, seen[2:4]) == expected


def test_canceled_between_any_two_stages_nothing_has_happened(policy: Policy, seen: list[Observation]) -> None:
    stages, limit = itertools.count(), [10**9]

    def count_down() -> None:
        if next(stages) == limit[0]:
            raise FlashrtError(ErrorCode.CANCELED, "stop")

    session = Session(policy, between_stages=count_down)
    session.begin(INSTRUCTION, seed=7)
    run(session, seen[:1])
    before = session.digests()
    canceled = 0
    for number in range(20):
        limit[0] = next(stages) + 1 + number
        try:
            session.observe(seen[1])
            session.act()
        except FlashrtError:
            canceled += 1
            while session.head is not None and session.digests() != before:
                session.rollback(1, Mode.EXACT)
            assert session.digests() == before
            continue
        break
    assert canceled >= 4


def test_a_snapshot_between_stages_is_of_the_last_boundary(policy: Policy, seen: list[Observation]) -> None:
    session: Session
    taken = itertools.count()

    def snap() -> None:
        if session.head is not None and snapping:
            session.snapshot(f"during-{next(taken)}")

    snapping = False
    session = Session(policy, between_stages=snap)
    session.begin(INSTRUCTION, seed=7)
    run(session, seen[:2])
    b = policy.plan.buffers
    session.snapshot("before")
    expected = session.find("before").sha256(b)
    snapping = True
    session.observe(seen[2])
    snapping = False
    assert next(taken) > 1
    for capsule in session.store.list():
        if capsule.name.startswith("during"):
            assert capsule.sha256(b) == expected
    after = run(session, seen[3:4])
    session.restore("during-1", Mode.EXACT)
    session.observe(seen[2])
    assert run(session, seen[3:4]) == after


def test_a_small_journal_says_how_far_back_it_goes(policy: Policy, seen: list[Observation]) -> None:
    session = Session(policy, journal_bytes=1)
    session.begin(INSTRUCTION)
    run(session, seen[:2])
    with pytest.raises(
        FlashrtError, match=r"the journal goes 0 back; .*\(journal_budget of policy_node, journal_bytes of a Session\)"
    ) as refused:
        session.rollback(1)
    assert refused.value.code is ErrorCode.NOT_IN_JOURNAL


def test_the_start_of_the_episode_is_found_after_a_replan(session: Session, seen: list[Observation]) -> None:
    session.begin(INSTRUCTION, seed=7)
    start = session.digests()
    session.observe(seen[0])
    session.instruct("then the blue one")
    assert session.restore("episode_start", Mode.EXACT).prefilled_tokens == 0
    assert session.digests() == start


def test_a_capsule_from_before_an_amendment_does_not_stand_in_for_the_boundary(
    policy: Policy, seen: list[Observation]
) -> None:
    keys = []
    for journal_bytes in (256 << 20, 1):
        session = Session(policy, journal_bytes=journal_bytes)
        session.begin(INSTRUCTION, seed=7)
        session.observe(seen[0])
        session.snapshot("before the retry".replace(" ", "-"))
        session.retry(1)
        key = int(policy.plan.buffers["generator"][0])
        session.observe(seen[1])
        with contextlib.suppress(FlashrtError):
            session.rollback(1, Mode.EXACT)
            keys.append(int(policy.plan.buffers["generator"][0]) == key)
    assert keys == [True]


@append_only
def test_a_recipe_that_overflows_a_smaller_context_is_rebuilt(
    checkpoint: Path, policy: Policy, seen: list[Observation], tmp_path: Path
) -> None:
    large = Session(load_policy(write_tiny_checkpoint(tmp_path, max_rows=512, max_instruction_tokens=48)))
    large.begin(INSTRUCTION, seed=7)
    for observation in seen[:14]:
        large.observe(observation)
    large.snapshot("large")
    session = Session(policy, CapsuleStore(1 << 30))
    session.store.add(large.find("large"))
    report = session.restore("large", rebuild=True)
    assert report.rebuilt
    assert report.boundary.instruction == INSTRUCTION
    for steps in range(1, 30):
        try:
            session.check_rollback(steps)
        except FlashrtError:
            break
        session.rollback(steps, Mode.EXACT)
        session.restore("large", rebuild=True)
