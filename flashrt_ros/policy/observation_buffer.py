# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The newest parts of an observation, and whether they make a whole one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

Parts = dict[str, tuple[int, Any]]
"""Stamp (ns) and value of each part of a whole observation."""

_KEPT = 8


@dataclass(slots=True)
class Part:
    """One input: its newest values by stamp, and why the newest message was refused. Times in ns."""

    key: str
    topic: str
    max_age: int
    values: deque[tuple[int, Any]] = field(default_factory=lambda: deque(maxlen=_KEPT))
    refusal: str = ""
    received: int = 0
    refused: int = 0

    @property
    def stamp(self) -> int | None:
        """Of the newest value; None: there is none."""
        return self.values[-1][0] if self.values else None


class ObservationBuffer:
    """Keeps the newest values of each part. An observation is whole or it is none: nothing is filled in."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self.parts = {part.key: part for part in parts}

    def add(self, key: str, stamp: int, value: Any) -> None:
        """Take a value; one with the stamp of the newest replaces it."""
        part = self.parts[key]
        part.received += 1
        part.refusal = ""
        if part.stamp == stamp:
            part.values.pop()
        part.values.append((stamp, value))

    def refuse(self, key: str, why: str) -> None:
        """Note a message that cannot be used; the value before it stays until it is too old."""
        part = self.parts[key]
        part.received += 1
        part.refused += 1
        part.refusal = why

    def clear(self) -> None:
        """Forget every value."""
        for part in self.parts.values():
            part.values.clear()

    def newest(self, after: int, now: int) -> Parts:
        """Return stamp and value of each part's newest, all stamped after `after` and fresh at `now` (ns).

        Raises:
            FlashrtError: BAD_OBSERVATION, naming each part that is not there and why.
        """
        return self._whole({key: self._trouble(part, after, now) for key, part in self.parts.items()}, None)

    def at(self, stamp: int, after: int) -> Parts:
        """Return stamp and value of each part at `stamp` (ns), which must be after `after`; errors as `newest`."""
        if stamp <= after:
            raise _bad(f"the tick at {stamp / 1e9:.3f} s is not after the gate closed at {after / 1e9:.3f} s")
        stamps = {key: {stamp for stamp, _ in part.values} for key, part in self.parts.items()}
        return self._whole({key: "" if stamp in stamps[key] else self._absence(stamp, key) for key in stamps}, stamp)

    def _whole(self, troubles: dict[str, str], stamp: int | None) -> Parts:
        lacking = [f"{key} ({self.parts[key].topic}): {trouble}" for key, trouble in troubles.items() if trouble]
        if lacking:
            raise _bad("; ".join(lacking))
        return {
            key: part.values[-1] if stamp is None else next(held for held in part.values if held[0] == stamp)
            for key, part in self.parts.items()
        }

    def _absence(self, stamp: int, key: str) -> str:
        return self.parts[key].refusal or f"nothing stamped {stamp / 1e9:.3f} s has come"

    def _trouble(self, part: Part, after: int, now: int) -> str:
        if part.stamp is None:
            return part.refusal or "nothing has come"
        age = now - part.stamp
        if part.stamp <= after:
            trouble = "nothing stamped after the gate closed has come"
        elif age > part.max_age:
            trouble = f"is {age / 1e9:.3f} s old, {part.max_age / 1e9:g} s are allowed"
        elif -age > part.max_age:
            trouble = f"is stamped {-age / 1e9:.3f} s in the future"
        else:
            return ""
        return f"{trouble}; the newest message was refused: {part.refusal}" if part.refusal else trouble


def _bad(message: str) -> FlashrtError:
    return FlashrtError(ErrorCode.BAD_OBSERVATION, message)
