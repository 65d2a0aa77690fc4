# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Does to a policy what a log says was done to another one, without waiting, and keeps what came out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from flashrt_ros.policy.loading import Policy
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.replay_capsules import Capsules, Held
from flashrt_ros.policy.replay_record import DRAWN_FREELY, Record, array_sha256, requested
from flashrt_ros.policy.session import Mode, Session
from flashrt_ros.policy.store import CapsuleStore
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

Rows = Callable[[np.ndarray], np.ndarray]

_NO_LIMIT = 1 << 62
_REPEATED_FAILURES = ("observe", "act")
"""Verbs whose refusal depends on the state and its inputs alone, so that it must come again."""


class Inputs(Protocol):
    """Where the observations of a log are."""

    def observation(self, record: Record) -> Observation:
        """What an `observe` took; BAD_OBSERVATION if it is not there, or is not what the record hashed."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What is done otherwise than the log says; None: as it says."""

    instruction: str | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What became of one record.

    Attributes:
        record: what the log says.
        actions: float64 [horizon, joints] of an act, in the robot's units.
        sha256: of these actions, or of the tokens of a say.
        seconds: that it took.
        trouble: why it could not be done, or ended otherwise than it did then; empty: neither.
        note: what is worth knowing.
    """

    record: Record
    actions: np.ndarray | None = None
    sha256: str = ""
    seconds: float = 0.0
    trouble: str = ""
    note: str = ""

    @property
    def equal(self) -> bool:
        """Whether an act drew, or a say said, the recorded bytes."""
        return bool(self.sha256) and self.sha256 == self.record.output_sha256


class Replay:
    """One pass over a log.

    A verb that cannot be done leaves the state unknown: what follows is passed over up to the next record that depends
    on nothing before it.
    """

    def __init__(
        self, policy: Policy, inputs: Inputs, capsules: Capsules, what_if: WhatIf, rows: Rows = lambda actions: actions
    ) -> None:
        """Wait for `run`.

        Args:
            policy: what the log is followed with.
            inputs: what it observed.
            capsules: those that the log does not make itself.
            what_if: what is done otherwise.
            rows: from the policy's actions to those of the robot, which are what a log has the hashes of.
        """
        self.session = Session(policy, CapsuleStore(_NO_LIMIT), _NO_LIMIT)
        self._inputs = inputs
        self._what_if = what_if
        self._rows = rows
        self._held = Held(self.session, capsules, what_if == WhatIf())
        self._lost = "the log begins in the middle of an episode, at a state that is not recorded"

    def start_from(self, name: str, boundary: str) -> str:
        """Take up a capsule; what the log did up to it is not repeated. Returns what is worth knowing of it."""
        note = self._held.take_up(name, boundary, Mode.EXACT)
        self._lost = ""
        if self._what_if.instruction is not None:
            self.session.instruct(self._what_if.instruction)
        if self._what_if.seed is not None:
            self.session.reseed(self._what_if.seed)
        return note

    def run(self, records: Sequence[Record], progress: Callable[[int], None] = lambda done: None) -> list[Step]:
        """Follow the records; `progress` is told how many are done."""
        self._held.expect(records)
        steps = []
        for index, record in enumerate(records):
            steps.append(self._step(record))
            progress(index + 1)
        return steps

    def _step(self, record: Record) -> Step:
        if self._lost and not record.self_contained:
            return Step(record, trouble=f"not replayed: {self._lost}")
        if record.error_code and record.verb not in _REPEATED_FAILURES:
            return Step(record, note=f"was refused: {ErrorCode(record.error_code).name}")
        began = time.perf_counter()
        try:
            output, note = self._do(record)
        except FlashrtError as error:
            return self._failed(record, error, time.perf_counter() - began)
        seconds = time.perf_counter() - began
        self._lost = ""
        trouble = ""
        if record.error_code:
            self._lost = trouble = f"failed with {ErrorCode(record.error_code).name} then, and not now"
        digest = array_sha256(output) if output is not None else ""
        if record.verb == "say" and digest != record.output_sha256:
            note = "said something else than then"
        return Step(record, output if record.verb == "act" else None, digest, seconds, trouble, note)

    def _failed(self, record: Record, error: FlashrtError, seconds: float) -> Step:
        if record.error_code == error.code:
            return Step(record, seconds=seconds, note=f"failed as it did then: {error}")
        self._lost = f"{record.verb} {record.sequence} could not be done"
        return Step(record, seconds=seconds, trouble=f"{error.code.name}: {error}")

    def _do(self, record: Record) -> tuple[np.ndarray | None, str]:
        """What the verb put out, and what is worth knowing."""
        session, what_if, note = self.session, self._what_if, ""
        output = None
        match record.verb:
            case "begin":
                instruction = record.instruction if what_if.instruction is None else what_if.instruction
                seed = record.seed if what_if.seed is None else what_if.seed
                session.begin(instruction, seed, record.retry)
            case "instruct":
                session.instruct(record.instruction if what_if.instruction is None else what_if.instruction)
            case "observe":
                session.observe(self._inputs.observation(record))
            case "act":
                output = self._rows(self._act(record))
            case "say":
                asked = requested(record)
                said = session.say(asked.max_tokens, asked.stop, asked.prompt, asked.closing, asked.speculate)
                output = np.array(said.tokens, np.int64)
            case "executed":
                session.executed(record.act_index, record.cursor)
            case "discard":
                if session.head is not None:
                    session.discard_plan()
            case "retry":
                session.retry(record.retry)
            case "reseed":
                session.reseed(record.seed if what_if.seed is None else what_if.seed)
            case "snapshot":
                self._held.snapshot(record)
            case "restore":
                note = self._held.restore(record)
            case "rollback":
                note = self._held.rollback(record)
            case "resume":
                note = self._held.take_up(record.capsule, record.boundary, Mode.EXACT) if self._lost else ""
            case _:
                raise FlashrtError(ErrorCode.NOT_SUPPORTED, f"the log has the verb {record.verb!r}; upgrade to read it")
        self._held.note(record)
        return output, note

    def _act(self, record: Record) -> np.ndarray:
        if record.inference_delay == DRAWN_FREELY:
            return self.session.act().actions
        return self.session.act(record.inference_delay, record.cursor).actions
