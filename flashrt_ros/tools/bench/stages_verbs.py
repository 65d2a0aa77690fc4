# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The verbs of a session as their caller sees them: on the wall's clock, with all that the host does."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from flashrt_ros.policy.loading import Policy
from flashrt_ros.policy.session import Session
from flashrt_ros.policy.store import CapsuleStore
from flashrt_ros.tools.audit import random_observation
from flashrt_ros.tools.bench.stages_speeds import COLD, RESUMED, SEGMENT, TOKEN

COLD_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Verb:
    """Seconds of a verb, or of some one behind the other."""

    name: str
    tokens: int
    p50: float
    p99: float


class Verbs:
    """Runs the verbs and keeps their times."""

    def __init__(self, policy: Policy, store_bytes: int, journal_bytes: int) -> None:
        self._policy = policy
        self._session = Session(policy, CapsuleStore(store_bytes), journal_bytes)
        self._numbers = itertools.count()
        self._rng = np.random.default_rng(0)

    def measure(self, lengths: Sequence[int], position: int, repeats: int, say: Callable[[str], None]) -> list[Verb]:
        """Measure at each length; an observation with its chunk behind `position` rows."""
        found = []
        for length in lengths:
            say(f"verbs at {length} tokens")
            found += self._at(length, repeats)
        say(f"verbs at {position} tokens")
        return [*found, *self._behind(position, repeats)]

    def _at(self, length: int, repeats: int) -> list[Verb]:
        session, times = self._session, _Times(length)

        def cold() -> None:
            self._fill(length)
            self._say_behind()

        def resume() -> None:
            session.restore("measured")
            self._say_behind()

        for _ in range(COLD_REPEATS):
            times.take(COLD, cold)
        self._fill(length)
        for _ in range(repeats):
            times.take("snapshot", lambda: session.snapshot("measured"))
            session.begin("something else")
            times.take("restore", lambda: session.restore("measured"))
            session.instruct(self._text(SEGMENT))
            times.take("rollback", lambda: session.rollback(1))
            session.begin("something else")
            times.take(RESUMED, resume)
            session.rollback(2)
            session.store.drop("measured")
        return times.found()

    def _behind(self, position: int, repeats: int) -> list[Verb]:
        session, times = self._session, _Times(position)
        self._fill(position)
        session.snapshot("measured")

        def observe_and_act() -> None:
            session.observe(random_observation(self._policy, self._rng, 1))
            session.act()

        for _ in range(repeats):
            times.take("observe and act", observe_and_act)
            times.take(TOKEN, lambda: session.say(1, speculate=False))
            session.restore("measured")
        session.store.drop("measured")
        return times.found()

    def _say_behind(self) -> None:
        """Append a segment, and say one token behind it."""
        self._session.instruct(self._text(SEGMENT))
        self._session.say(1)

    def _fill(self, length: int) -> None:
        """Begin anew, and have a context of so many rows."""
        longest = self._policy.model.config.max_instruction_tokens
        self._session.begin(self._text(min(longest, length)))
        while (missing := length - self._rows()) > 0:
            self._session.instruct(self._text(min(longest, missing)))

    def _rows(self) -> int:
        head = self._session.head
        return head.cursors["position"] if head is not None else 0

    def _text(self, rows: int) -> str:
        """A text that was never used before and fills so many rows."""
        return f"{next(self._numbers)} ".ljust(rows, "x")


class _Times:
    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self._seconds: dict[str, list[float]] = {}

    def take(self, name: str, verb: Callable[[], object]) -> None:
        started = time.perf_counter()
        verb()
        self._seconds.setdefault(name, []).append(time.perf_counter() - started)

    def found(self) -> list[Verb]:
        return [
            Verb(name, self._tokens, float(np.percentile(seconds, 50)), float(np.percentile(seconds, 99)))
            for name, seconds in self._seconds.items()
        ]
