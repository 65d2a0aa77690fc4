# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A log of a session's verbs, followed by another session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from flashrt_ros.models.tiny_pi0 import write_tiny_pi0
from flashrt_ros.policy.capsule_folder import CapsuleFolder
from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.replay import Replay, Step, WhatIf
from flashrt_ros.policy.replay_capsules import Capsules
from flashrt_ros.policy.replay_record import DRAWN_FREELY, Done, Record, array_sha256, inputs_of
from flashrt_ros.policy.replay_session import RecordedSession
from flashrt_ros.policy.session import EPISODE_START, Mode
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.tools.audit import random_observation

AS_RECORDED = WhatIf()


@dataclass
class Log:
    """What a session told, as its records would be read back, and what they refer to."""

    records: list[Record] = field(default_factory=list)
    seen: dict[int, Observation] = field(default_factory=dict)
    drawn: list[np.ndarray] = field(default_factory=list)
    capsules: list[Capsule] = field(default_factory=list)
    wants_state: bool = False

    def done(self, done: Done) -> None:
        record = done.record
        if done.observation is not None:
            self.seen[done.observation.stamp] = done.observation
            record = replace(record, inputs=inputs_of(done.observation))
        if done.chunk is not None:
            self.drawn.append(done.chunk.actions)
            record = replace(record, output_sha256=array_sha256(done.chunk.actions))
        if done.capsule is not None:
            self.capsules.append(done.capsule)
        self.records.append(record)

    def state_wanted(self) -> bool:
        wanted, self.wants_state = self.wants_state, False
        return wanted

    def observation(self, record: Record) -> Observation:
        seen = self.seen.get(record.inputs[0].stamp)
        if seen is None:
            raise FlashrtError(ErrorCode.BAD_OBSERVATION, f"nothing at {record.inputs[0].stamp}")
        return seen

    def acts(self) -> list[Record]:
        return [record for record in self.records if record.verb == "act"]

    def write(self, folder: Path, policy: Policy, *names: str) -> Capsules:
        """The capsules as files: those named, or all."""
        target = CapsuleFolder(folder, 1 << 30)
        for capsule in self.capsules:
            if not names or capsule.name in names:
                target.write(capsule, policy.plan.buffers, lambda name: False)
        target.close()
        return Capsules([folder])


@dataclass
class Episode:
    """A session that is recorded, and the eyes of its robot."""

    session: RecordedSession
    seen: list[Observation]
    stamp: int = 0

    def run(self, chunks: int) -> None:
        for _ in range(chunks):
            self.session.observe(self.seen[self.stamp])
            self.stamp += 1
            chunk = self.session.act()
            self.session.executed(chunk.act_index, 2)


@pytest.fixture(scope="module")
def seen(loaded: Policy) -> list[Observation]:
    rng = np.random.default_rng(5)
    return [random_observation(loaded, rng, stamp) for stamp in range(1, 40)]


@pytest.fixture(scope="module")
def log(loaded: Policy, seen: list[Observation]) -> Log:
    """An episode with every verb in it."""
    log = Log()
    episode = Episode(RecordedSession(loaded, listener=log), seen)
    session = episode.session
    session.begin("press the red button", seed=7)
    episode.run(2)
    session.snapshot("before")
    episode.run(2)
    session.restore("before")
    episode.run(1)
    session.rollback(2, Mode.EXACT)
    session.retry(1)
    episode.run(1)
    session.restore("before", Mode.EXACT)
    session.instruct("press the blue button")
    log.wants_state = True
    episode.run(1)
    session.fork("branch", "left")
    episode.run(1)
    session.rollback(4)
    episode.run(1)
    session.reset(seed=3)
    session.discard_plan()
    episode.run(1)
    session.restore(EPISODE_START)
    episode.run(1)
    with pytest.raises(FlashrtError):
        session.restore("no_such_capsule")
    session.restore("branch")
    episode.run(1)
    return log


def drawn(steps: list[Step]) -> list[Step]:
    return [step for step in steps if step.record.verb == "act"]


def follow(policy: Policy, log: Log, capsules: Capsules, what_if: WhatIf = AS_RECORDED) -> list[Step]:
    return Replay(policy, log, capsules, what_if).run(log.records)


def test_every_chunk_is_drawn_again_from_the_start(policy: Policy, log: Log) -> None:
    steps = follow(policy, log, Capsules([]))
    assert [step.trouble for step in steps if step.trouble] == []
    assert len(drawn(steps)) == len(log.drawn) == 12
    assert all(step.equal for step in drawn(steps))


@pytest.mark.parametrize("name", ["before", "branch", "resume"])
def test_every_chunk_behind_a_capsule_is_drawn_again(policy: Policy, log: Log, tmp_path: Path, name: str) -> None:
    capsules = log.write(tmp_path / "capsules", policy)
    verbs = [record.capsule if record.verb == "snapshot" else record.verb for record in log.records]
    start = verbs.index(name)
    replay = Replay(policy, log, capsules, AS_RECORDED)
    replay.start_from(log.records[start].capsule, log.records[start].boundary)
    steps = replay.run(log.records[start + 1 :])
    assert [step.trouble for step in steps if step.trouble] == []
    assert len(drawn(steps)) >= 5
    assert all(step.equal for step in drawn(steps))


def test_a_rollback_behind_the_start_is_built_from_the_recipe(policy: Policy, log: Log, tmp_path: Path) -> None:
    start = next(index for index, record in enumerate(log.records) if record.capsule == "branch")
    replay = Replay(policy, log, log.write(tmp_path / "capsules", policy, "branch"), AS_RECORDED)
    replay.start_from("branch", log.records[start].boundary)
    steps = replay.run(log.records[start + 1 :])
    assert [step.note[:12] for step in steps if step.record.verb == "rollback"] == ["rebuilt from"]
    assert all(step.equal for step in drawn(steps))


def test_a_log_that_begins_in_the_middle_is_taken_up_at_the_next_kept_state(
    policy: Policy, log: Log, tmp_path: Path
) -> None:
    first = next(index for index, record in enumerate(log.records) if record.verb == "instruct")
    late = Log(log.records[first:], log.seen)
    steps = follow(policy, late, log.write(tmp_path / "capsules", policy))
    resumed = next(index for index, step in enumerate(steps) if step.record.verb == "resume")
    assert all("in the middle of an episode" in step.trouble for step in steps[:resumed])
    assert [step.trouble for step in steps[resumed:] if step.trouble] == []
    assert all(step.equal for step in drawn(steps[resumed:]))


def test_a_changed_pixel_is_seen_in_the_chunk(policy: Policy, log: Log) -> None:
    changed = Log(log.records, dict(log.seen))
    observation = changed.seen[2]
    images = {key: image.copy() for key, image in observation.images.items()}
    next(iter(images.values()))[3, 3] ^= 255
    changed.seen[2] = replace(observation, images=images)
    steps = drawn(follow(policy, changed, Capsules([])))
    assert [step.equal for step in steps[:2]] == [True, False]


def test_an_absent_observation_ends_the_replay_up_to_the_next_start(policy: Policy, log: Log) -> None:
    lacking = Log(log.records, {stamp: seen for stamp, seen in log.seen.items() if stamp != 2})
    steps = drawn(follow(policy, lacking, Capsules([])))
    assert [bool(step.trouble) for step in steps[:4]] == [False, True, True, True]
    assert all(step.equal for step in steps if not step.trouble)


def test_an_absent_capsule_is_named(policy: Policy, log: Log) -> None:
    restored = next(index for index, record in enumerate(log.records) if record.verb == "restore")
    steps = Replay(policy, log, Capsules([]), AS_RECORDED).run(log.records[restored:])
    assert "no file of capsule before" in steps[0].trouble
    assert "restore" in steps[1].trouble


def test_a_failure_must_come_again(policy: Policy, log: Log) -> None:
    failing = list(log.records)
    first = next(index for index, record in enumerate(failing) if record.verb == "observe")
    bad = replace(failing[first], error_code=int(ErrorCode.BAD_OBSERVATION))
    absent = replace(bad, inputs=tuple(replace(part, stamp=999) for part in bad.inputs))
    replay = Replay(policy, log, Capsules([]), AS_RECORDED)
    steps = replay.run([failing[0], absent, bad])
    assert "failed as it did then" in steps[1].note
    assert "failed with BAD_OBSERVATION then, and not now" in steps[2].trouble


def test_an_unknown_verb_asks_for_an_upgrade(policy: Policy, log: Log) -> None:
    steps = Replay(policy, log, Capsules([]), AS_RECORDED).run([log.records[0], Record("teleport", 2)])
    assert "NOT_SUPPORTED" in steps[1].trouble


def test_what_if_asks_from_the_same_boundary(policy: Policy, log: Log, tmp_path: Path) -> None:
    recorded = drawn(follow(policy, log, Capsules([])))
    seed = drawn(follow(policy, log, Capsules([]), WhatIf(seed=8)))
    text = drawn(follow(policy, log, Capsules([]), WhatIf(instruction="press the green button")))
    for other in (seed, text):
        assert [step.trouble for step in other if step.trouble] == []
        assert not np.array_equal(other[0].actions, recorded[0].actions)
    start = next(index for index, record in enumerate(log.records) if record.capsule == "before")
    replay = Replay(policy, log, log.write(tmp_path / "capsules", policy, "before"), WhatIf(seed=8))
    replay.start_from("before", log.records[start].boundary)
    assert not drawn(replay.run(log.records[start + 1 : start + 3]))[0].equal


def test_chunks_that_go_on_from_others_go_on_again(tmp_path: Path) -> None:
    guided = load_policy(write_tiny_pi0(tmp_path, "pi05", steps=3), views=["base_0_rgb"])
    log, rng = Log(), np.random.default_rng(5)
    session = RecordedSession(guided, listener=log)
    session.begin("press the red button", seed=7)
    for stamp, goes_on in enumerate([(), (2,), (4, 1), (0, 0), (8, 3), (2, 10)], start=1):
        session.observe(random_observation(guided, rng, stamp))
        session.executed(session.act(*goes_on).act_index, 3)
    for no_record_holds in (-1, "2", 2**31):
        with pytest.raises(FlashrtError):
            session.act(no_record_holds, 0)
    assert [(record.inference_delay, record.cursor) for record in log.acts()] == [
        (-1, 0),
        (2, 3),
        (4, 1),
        (0, 0),
        (7, 3),  # the chunk before it has no more rows
        (-1, 0),  # nor any here
    ]
    steps = follow(guided, log, Capsules([]))
    assert [step.trouble for step in steps if step.trouble] == []
    assert [step.equal for step in drawn(steps)] == [True] * 6
    free = Log([replace(record, inference_delay=DRAWN_FREELY) for record in log.records], log.seen)
    assert [step.equal for step in drawn(follow(guided, free, Capsules([])))] == [True, *[False] * 4, True]


def test_what_was_said_is_said_again(talkative: Callable[..., Path], tmp_path: Path) -> None:
    speaking = load_policy(talkative(tmp_path, 3, max_rows=256, max_instruction_tokens=48))
    log, rng = Log(), np.random.default_rng(5)
    session = RecordedSession(speaking, listener=log)
    session.begin("press the red button", seed=7)
    session.observe(random_observation(speaking, rng, 1))
    said = session.say(9, stop=("<|im_end|>",), prompt="<|im_start|>assistant\n", closing="\n")
    session.act()
    session.reseed(8)
    session.act()
    steps = follow(speaking, log, Capsules([]))
    assert [step.trouble + step.note for step in steps if step.trouble + step.note] == []
    told = next(step for step in steps if step.record.verb == "say")
    assert told.equal
    assert told.record.output_sha256 == array_sha256(np.array(said.tokens, np.int64))
    assert [step.equal for step in drawn(steps)] == [True, True]
    other = Log([replace(record, request=record.request.replace("9", "3")) for record in log.records], log.seen)
    steps = follow(speaking, other, Capsules([]))
    assert [step.note for step in steps if step.record.verb == "say"] == ["said something else than then"]
    assert not drawn(steps)[0].equal
    broken = Log([replace(record, request="{}") for record in log.records], log.seen)
    assert "DAMAGED: record 3 asks to say '{}'" in follow(speaking, broken, Capsules([]))[2].trouble


def test_another_number_of_threads_rebuilds_the_capsule_and_stays_near(
    checkpoint: Path, log: Log, loaded: Policy, tmp_path: Path
) -> None:
    capsules = log.write(tmp_path / "capsules", loaded, "before")
    start = next(index for index, record in enumerate(log.records) if record.capsule == "before")
    acts = sum(record.verb == "act" for record in log.records[:start])
    replay = Replay(load_policy(checkpoint, threads=2), log, capsules, AS_RECORDED)
    note = replay.start_from("before", log.records[start].boundary)
    assert "numerics.threads: expected 2, found 1" in note
    steps = drawn(replay.run(log.records[start + 1 :]))
    load_policy(checkpoint)  # the number of threads is the process's: put it back
    for step, actions in zip(steps, log.drawn[acts:], strict=True):
        assert step.trouble == ""
        assert np.abs(step.actions - actions).max() < 1e-3
