# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A session that tells what was done to it, in order, so that it can be done again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from flashrt_ros.policy.loading import Policy
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.replay_record import (
    DRAWN_FREELY,
    Done,
    Record,
    array_sha256,
    can_hold,
    manifest_sha256,
    request_of,
)
from flashrt_ros.policy.saying import END_OF_TURN, Said
from flashrt_ros.policy.session import EPISODE_START, Chunk, Mode, Session, VerbReport
from flashrt_ros.policy.store import CapsuleStore
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.recipe import Event, Say

RESUME = "resume"


class Listener(Protocol):
    """Who is told; on the thread that uses the session."""

    def done(self, done: Done) -> None:
        """Take what was done, or what was refused; it must not wait for anything."""

    def state_wanted(self) -> bool:
        """Whether the state itself is wanted too, as a start from which the log can be followed."""


@dataclass(slots=True)
class _Result:
    observation: Observation | None = None
    chunk: Chunk | None = None
    capsule: Capsule | None = None
    said_sha256: str = ""


class RecordedSession(Session):
    """Tells its listener of each verb once it is committed, and of those that failed.

    A canceled verb left no trace, and none is told of it; nor of one that was refused for what no record can hold.
    """

    def __init__(
        self,
        policy: Policy,
        store: CapsuleStore | None = None,
        journal_bytes: int = 256 << 20,
        between_stages: Callable[[], None] = lambda: None,
        *,
        listener: Listener,
    ) -> None:
        super().__init__(policy, store, journal_bytes, between_stages)
        self._listener = listener
        self._manifest = manifest_sha256(policy.manifest())
        self._told = 0
        self._withheld: list[Done] | None = None

    @contextmanager
    def together(self) -> Iterator[None]:
        """As Session.together; the listener is told when all of it is committed, and of nothing where it is not."""
        self._withheld = []
        try:
            with super().together():
                yield
            withheld = self._withheld
        finally:
            self._withheld = None
        for done in withheld:
            self._deliver(done)

    def begin(self, instruction: str, seed: int = 0, retry: int = 0) -> VerbReport:
        """As Session.begin; `reset` comes here too."""
        with self._telling("begin", instruction=instruction, seed=seed, retry=retry) as result:
            report = super().begin(instruction, seed, retry)
            result.capsule = self.find(EPISODE_START)
            return report

    def instruct(self, instruction: str) -> VerbReport:
        """As Session.instruct."""
        with self._telling("instruct", instruction=instruction):
            return super().instruct(instruction)

    def observe(self, observation: Observation) -> VerbReport:
        """As Session.observe."""
        with self._telling("observe") as result:
            result.observation = observation
            return super().observe(observation)

    def act(self, delay: int | None = None, row: int | None = None) -> Chunk:
        """As Session.act."""
        if delay is not None:
            row = int(self.live.plan.buffers["plan"][1]) if row is None else row
        goes_on = {} if delay is None or row is None else {"inference_delay": delay, "cursor": row}
        with self._telling("act", **goes_on) as result:
            result.chunk = super().act(delay, row)
            return result.chunk

    def say(
        self,
        max_tokens: int,
        stop: Sequence[str] = END_OF_TURN,
        prompt: str = "",
        closing: str = "",
        speculate: bool = True,
    ) -> Said:
        """As Session.say."""
        asked = Say(max_tokens, tuple(stop), prompt, closing, speculate)
        with self._telling("say", request=request_of(asked)) as result:
            said = super().say(max_tokens, stop, prompt, closing, speculate)
            result.said_sha256 = array_sha256(np.array(said.tokens, np.int64))
            return said

    def reseed(self, seed: int) -> None:
        """As Session.reseed."""
        with self._telling("reseed", seed=seed):
            super().reseed(seed)

    def executed(self, act_index: int, cursor: int) -> None:
        """As Session.executed; the moment in which a copy of the state delays nothing."""
        with self._telling("executed", act_index=act_index, cursor=cursor):
            super().executed(act_index, cursor)
        self._resume_if_wanted()

    def discard_plan(self) -> None:
        """As Session.discard_plan."""
        with self._telling("discard"):
            super().discard_plan()
        self._resume_if_wanted()

    def retry(self, count: int) -> None:
        """As Session.retry."""
        with self._telling("retry", retry=count):
            super().retry(count)

    def snapshot(self, name: str, pinned: bool = False, label: str = "") -> VerbReport:
        """As Session.snapshot; `fork` comes here too."""
        with self._telling("snapshot", capsule=name) as result:
            report = super().snapshot(name, pinned, label)
            result.capsule = report.capsule
            return report

    def restore(self, name: str, mode: Mode = Mode.REOBSERVE, rebuild: bool = False) -> VerbReport:
        """As Session.restore."""
        with self._telling("restore", capsule=name, mode=int(mode)) as result:
            report = super().restore(name, mode, rebuild)
            result.capsule = report.capsule
            return report

    def rollback(self, steps: int, mode: Mode = Mode.REOBSERVE) -> VerbReport:
        """As Session.rollback."""
        with self._telling("rollback", steps=steps, mode=int(mode)):
            report = super().rollback(steps, mode)
        self._resume_if_wanted()
        return report

    def resume(self, boundary: str, capsule: Capsule | None, events: Sequence[Event]) -> VerbReport:
        """As Session.resume."""
        with self._telling(RESUME) as result:
            report = super().resume(boundary, capsule, events)
            result.capsule = self._present_state()
            return report

    def _present_state(self) -> Capsule:
        return self._capsule(f"{RESUME}.{self._told + 1}", "")

    def _resume_if_wanted(self) -> None:
        if self.head is None or not self._listener.state_wanted():
            return
        with self._telling(RESUME) as result:
            result.capsule = self._present_state()

    @contextmanager
    def _telling(self, verb: str, **said: Any) -> Iterator[_Result]:
        began, result = time.perf_counter(), _Result()
        try:
            yield result
        except FlashrtError as error:
            if error.code is not ErrorCode.CANCELED and can_hold(said):
                self._tell(Record(verb, error_code=int(error.code), **said), result, began)
            raise
        self._tell(Record(verb, **said), result, began)

    def _tell(self, record: Record, result: _Result, began: float) -> None:
        # What a snapshot holds is the committed boundary, also while a verb in progress has gone on from there.
        head = result.capsule.boundary if record.verb == "snapshot" and result.capsule is not None else self.head
        record = replace(
            record,
            delay=round((time.perf_counter() - began) * 1e9),
            capsule=result.capsule.name if result.capsule is not None else record.capsule,
            output_sha256=result.said_sha256,
            manifest=self._manifest,
        )
        if result.chunk is not None:
            record = _drawn(record, result.chunk)
        if head is not None:
            record = replace(
                record,
                boundary=head.id,
                parent=head.parent,
                boundary_kind=head.kind,
                position=head.cursors.get("position", 0),
            )
        done = Done(record, head, result.observation, result.chunk, result.capsule)
        # A snapshot may be taken between two stages of verbs together; it holds what was before them.
        if self._withheld is None or record.verb == "snapshot":
            self._deliver(done)
        else:
            self._withheld.append(done)

    def _deliver(self, done: Done) -> None:
        self._told += 1
        self._listener.done(replace(done, record=replace(done.record, sequence=self._told)))


def _drawn(record: Record, chunk: Chunk) -> Record:
    """The record of a chunk: what it goes on from, rather than what was asked for."""
    if chunk.held is None:
        return replace(record, act_index=chunk.act_index, inference_delay=DRAWN_FREELY, cursor=0)
    return replace(record, act_index=chunk.act_index, inference_delay=chunk.held)
