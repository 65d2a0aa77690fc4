# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The newest messages and records, within a span of time and of memory, from a start that replay can take up."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from flashrt_ros.policy.replay_record import Record
from flashrt_ros.runtime.capsule import Capsule

_TAIL = 2_000_000_000
"""ns for which what no inference has used is kept, and what may have been used by the first one of the window."""


@dataclass(frozen=True, slots=True)
class Item:
    """A serialised message. `record` and `capsule`: of a boundary record, and what it begins or restores."""

    time: int
    topic: str
    raw: bytes
    record: Record | None = None
    capsule: Capsule | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """What the ring held at one moment: items in the order of their time, and which capsules the records need."""

    items: tuple[Item, ...] = ()
    capsules: tuple[Capsule, ...] = ()


@dataclass(slots=True)
class _Used:
    """The stamps of a topic that inferences have used and whose messages have not been seen to be so yet."""

    stamps: deque[int] = field(default_factory=lambda: deque(maxlen=64))


class Ring:
    """Any thread may add to it.

    It begins at a record that depends on nothing before it (an episode's start, a restored capsule, a kept state). Of
    the images only those stay that an inference has used, but for the newest. Times are in ns and rise.
    """

    def __init__(self, seconds: float, budget_bytes: int, images: Iterable[str], latched: Iterable[str]) -> None:
        """`images` and `latched`: topics of which the unused, or all but the newest before the window, may go."""
        self._span = round(seconds * 1e9)
        self._budget = budget_bytes
        self._lock = threading.Lock()
        self._items: deque[Item] = deque()
        self._fresh: dict[str, deque[tuple[int, Item]]] = {topic: deque() for topic in images}
        self._used = {topic: _Used() for topic in images}
        self._latched: dict[str, Item | None] = dict.fromkeys(latched)
        self._starts: deque[int] = deque()
        self._nbytes = 0
        self._since_start = 0
        self._reachable: set[str] = set()
        self._resume = True

    @property
    def nbytes(self) -> int:
        """Bytes of messages held."""
        return self._nbytes

    def add(self, time: int, topic: str, raw: bytes) -> None:
        """Keep a message."""
        with self._lock:
            self._append(Item(time, topic, raw))

    def add_image(self, time: int, topic: str, stamp: int, raw: bytes) -> None:
        """Keep an image for as long as it may be used, or for good if an inference has used it."""
        with self._lock:
            item = Item(time, topic, raw)
            if stamp in self._used[topic].stamps:
                self._append(item)
                return
            fresh = self._fresh[topic]
            fresh.append((stamp, item))
            self._nbytes += len(raw)
            while fresh[0][1].time < time - _TAIL or (self._nbytes > self._budget and len(fresh) > 1):
                self._nbytes -= len(fresh.popleft()[1].raw)

    def add_record(self, item: Item, used: Iterable[tuple[str, int]]) -> None:
        """Keep a record; `used`: topic and stamp of the images that it observed."""
        assert item.record is not None
        with self._lock:
            for image, stamp in used:
                self._keep_used(image, stamp)
            self._append(item)
            self._note(item.time, item.record)

    def state_wanted(self) -> bool:
        """Whether a record with the whole state is due, so that older ones can go."""
        with self._lock:
            return self._resume or self._since_start > self._budget // 2

    def window(self) -> Window:
        """What is held now; its first record is a start, where there is one."""
        with self._lock:
            start = self._starts[0] if self._starts else 0
            latched = [item for item in self._latched.values() if item is not None]
            fresh = [item for waiting in self._fresh.values() for _, item in waiting]
            late_enough = [item for item in self._items if item.time >= (start if item.record else start - _TAIL)]
        items = sorted([*latched, *late_enough, *fresh], key=lambda item: item.time)
        return Window(tuple(items), _needed(items))

    def _append(self, item: Item) -> None:
        self._items.append(item)
        self._nbytes += len(item.raw)
        self._since_start += len(item.raw)
        self._trim(item.time)

    def _keep_used(self, topic: str, stamp: int) -> None:
        used = self._used.get(topic)
        if used is None:
            return
        used.stamps.append(stamp)
        kept, waiting = deque[tuple[int, Item]](), self._fresh[topic]
        for held, item in waiting:
            if held == stamp:
                self._nbytes -= len(item.raw)
                self._append(item)
            else:
                kept.append((held, item))
        self._fresh[topic] = kept

    def _note(self, time: int, record: Record) -> None:
        if record.self_contained:
            self._starts.append(time)
            self._since_start = 0
            self._reachable = {record.boundary}
            self._resume = False
        elif record.verb == "rollback" and record.boundary not in self._reachable:
            self._resume = True
        self._reachable.add(record.boundary)
        old = bool(self._starts) and time - self._starts[-1] >= self._span
        self._resume = self._resume or old

    def _trim(self, now: int) -> None:
        while len(self._starts) > 1 and (self._starts[1] <= now - self._span or self._nbytes > self._budget):
            self._starts.popleft()
            self._drop_before(self._starts[0] - _TAIL)
        while self._nbytes > self._budget and len(self._items) > 1:
            self._drop_oldest()

    def _drop_before(self, time: int) -> None:
        while self._items and self._items[0].time < time:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._items.popleft()
        self._nbytes -= len(oldest.raw)
        if oldest.topic in self._latched:
            self._latched[oldest.topic] = oldest
        if oldest.record is not None and self._starts and self._starts[0] == oldest.time:
            self._starts.popleft()


def _needed(items: Iterable[Item]) -> tuple[Capsule, ...]:
    """The capsules that replay cannot make itself, and the one at the first start."""
    made: set[tuple[str, str]] = set()
    needed: dict[tuple[str, str], Capsule] = {}
    for item in items:
        record = item.record
        if record is None or record.error_code:
            continue
        key = (record.capsule, record.boundary)
        first_or_not_made = not needed or record.verb == "resume" or (record.verb == "restore" and key not in made)
        if item.capsule is not None and first_or_not_made:
            needed.setdefault(key, item.capsule)
        made.add(key)
    return tuple(needed.values())
