# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The newest parts of an observation, and whether they make a whole one."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from flashrt_ros.policy.contract_observation import ImageSource, Observation
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

Parts = dict[str, tuple[int, Any]]
"""Stamp (ns) and value of each part of a whole observation."""

_KEPT = 8
_KEPT_ASOF = 512
"""Of numbers that are taken as of an older part: 1 kHz for half a second."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A part of the last observation. Times in ns.

    `age` is from its stamp to when the observation was made; `skew` how much newer it was than the oldest part.
    """

    stamp: int
    age: int
    skew: int


@dataclass(slots=True)
class Part:
    """One input: its newest values in the order of their stamps, and why the newest message was refused. Times in ns.

    `align` is the contract's. `kept` values at most are held.
    """

    key: str
    topic: str
    max_age: int
    align: str = "hold"
    kept: int = _KEPT
    values: list[tuple[int, Any]] = field(default_factory=list)
    refusal: str = ""
    received: int = 0
    refused: int = 0
    taken: Taken | None = None

    @property
    def stamp(self) -> int | None:
        """Of the newest value; None: there is none."""
        return self.values[-1][0] if self.values else None

    def insert(self, stamp: int, value: Any) -> None:
        """Put a value where its stamp belongs; one with the same stamp is replaced."""
        newest = self.stamp
        if newest is not None and stamp < newest - self.max_age:
            # So late no message is: the clock was set back, and the values held are of a time that no longer is.
            self.forget(stamp)
        index = bisect.bisect_left(self.values, stamp, key=lambda held: held[0])
        if index < len(self.values) and self.values[index][0] == stamp:
            self.values[index] = (stamp, value)
        else:
            self.values.insert(index, (stamp, value))
        del self.values[: -self.kept]

    def forget(self, now: int) -> None:
        """Forget what is of another time than `now`."""
        self.values = [held for held in self.values if abs(now - held[0]) <= self.max_age]
        if self.taken is not None and abs(now - self.taken.stamp) > self.max_age:
            self.taken = None

    def as_of(self, stamp: int) -> tuple[int, Any] | None:
        """Return the newest value that is not newer than `stamp`."""
        index = bisect.bisect_right(self.values, stamp, key=lambda held: held[0])
        return self.values[index - 1] if index else None


class ObservationBuffer:
    """Keeps the newest values of each part. An observation is whole or it is none: nothing is filled in."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self.parts = {part.key: part for part in parts}

    @classmethod
    def of(cls, observed: Observation) -> ObservationBuffer:
        """Make one for what a contract observes."""
        return cls(
            Part(
                source.key,
                source.topic,
                round(source.max_age * 1e9),
                source.align,
                _KEPT if isinstance(source, ImageSource) or source.align != "asof" else _KEPT_ASOF,
            )
            for source in observed.sources
        )

    def add(self, key: str, stamp: int, value: Any) -> None:
        """Take a value; one with the stamp of another replaces it."""
        part = self.parts[key]
        part.received += 1
        part.refusal = ""
        part.insert(stamp, value)

    def refuse(self, key: str, why: str) -> None:
        """Note a message that cannot be used; the value before it stays until it is too old."""
        part = self.parts[key]
        part.received += 1
        part.refused += 1
        part.refusal = why

    def take_back(self, key: str, stamp: int, why: str) -> None:
        """Refuse a value that was added: using it has shown that it cannot be used."""
        part = self.parts[key]
        part.values = [held for held in part.values if held[0] != stamp]
        part.refused += 1
        part.refusal = why

    def clear(self) -> None:
        """Forget every value."""
        for part in self.parts.values():
            part.values.clear()

    def time_jumped(self, now: int) -> None:
        """Forget the values that are of another time than `now` (ns), after the clock was set."""
        for part in self.parts.values():
            part.forget(now)

    def newest(self, after: int, now: int) -> Parts:
        """Take stamp and value of each part, all stamped after `after` and fresh at `now` (ns).

        A part aligned "hold" or "drop" gives its newest value, and "drop" gives each value once. One aligned "asof"
        gives the newest that is not newer than the oldest part.

        Raises:
            FlashrtError: BAD_OBSERVATION, naming each part that is not there and why.
        """
        self._complain({key: self._trouble(part, after, now) for key, part in self.parts.items()})
        newest = {key: part.values[-1] for key, part in self.parts.items()}
        instant = min(stamp for stamp, _ in newest.values())
        parts, troubles = {}, {}
        for key, part in self.parts.items():
            held = part.as_of(instant) if part.align == "asof" else newest[key]
            if held is None:
                troubles[key] = f"nothing as old as the oldest part, stamped {instant / 1e9:.3f} s, is held"
            else:
                troubles[key] = self._unfit(part, held[0], after, now)
                parts[key] = held
        self._complain(troubles)
        return self._take(parts, now)

    def at(self, stamp: int, after: int) -> Parts:
        """Take stamp and value of each part at `stamp` (ns), which must be after `after`; errors as `newest`."""
        if stamp <= after:
            raise _bad(f"the tick at {stamp / 1e9:.3f} s is not after the gate closed at {after / 1e9:.3f} s")
        held = {key: part.as_of(stamp) for key, part in self.parts.items()}
        parts = {key: value for key, value in held.items() if value is not None and value[0] == stamp}
        self._complain({key: self._absence(stamp, key) for key in self.parts if key not in parts})
        return self._take(parts, stamp)

    def _take(self, parts: Parts, now: int) -> Parts:
        oldest = min(stamp for stamp, _ in parts.values())
        for key, (stamp, _) in parts.items():
            self.parts[key].taken = Taken(stamp, now - stamp, stamp - oldest)
        return parts

    def _complain(self, troubles: dict[str, str]) -> None:
        lacking = [f"{key} ({self.parts[key].topic}): {trouble}" for key, trouble in troubles.items() if trouble]
        if lacking:
            raise _bad("; ".join(lacking))

    def _absence(self, stamp: int, key: str) -> str:
        return self.parts[key].refusal or f"nothing stamped {stamp / 1e9:.3f} s has come"

    def _trouble(self, part: Part, after: int, now: int) -> str:
        if part.stamp is None:
            return part.refusal or "nothing has come"
        trouble = self._unfit(part, part.stamp, after, now)
        if not trouble:
            return ""
        return f"{trouble}; the newest message was refused: {part.refusal}" if part.refusal else trouble

    def _unfit(self, part: Part, stamp: int, after: int, now: int) -> str:
        """Return why a value with this stamp cannot be taken; empty: it can."""
        age = now - stamp
        if stamp <= after:
            return "nothing stamped after the gate closed has come"
        if age > part.max_age and not stamp:
            return "its driver sets no stamp; mend that, or take it by stamp: receive in the contract"
        if age > part.max_age:
            return f"is {age / 1e9:.3f} s old, {part.max_age / 1e9:g} s are allowed"
        if -age > part.max_age:
            return f"is stamped {-age / 1e9:.3f} s in the future"
        if part.align == "drop" and part.taken is not None and stamp <= part.taken.stamp:
            return "nothing has come since the observation before"
        return ""


def _bad(message: str) -> FlashrtError:
    return FlashrtError(ErrorCode.BAD_OBSERVATION, message)
