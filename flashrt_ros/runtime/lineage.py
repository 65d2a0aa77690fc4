# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Boundaries, which rows of the arena still belong to them, and the journal of their small state."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from flashrt_ros.runtime.backend import Saved
from flashrt_ros.runtime.recipe import Recipe

BoundaryKind = Literal["episode_start", "instruct", "observe", "act", "say", "compact"]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows one append wrote, after those of `parent`; `ends` are the cursors behind them.

    Rows are append-only along a lineage, so two chains share exactly the rows of their common links.
    """

    parent: Rows | None = None
    ends: Mapping[str, int] = field(default_factory=dict)
    depth: int = 0

    def append(self, ends: Mapping[str, int]) -> Rows:
        """Continue the chain up to new cursors."""
        return Rows(self, dict(ends), self.depth + 1)

    def until(self, cursor: str, row: int) -> Rows:
        """The longest part of this chain that ends at or before `row`."""
        node = self
        while node.parent is not None and node.ends.get(cursor, 0) > row:
            node = node.parent
        return node


def common(left: Rows, right: Rows) -> Rows | None:
    """The last link that both chains share."""
    a: Rows | None = left
    b: Rows | None = right
    while a is not b:
        if a is None or b is None:
            return None
        if a.depth >= b.depth:
            a = a.parent
        else:
            b = b.parent
    return a


@dataclass(frozen=True, slots=True, eq=False)
class Boundary:
    """A committed point between stages."""

    id: str
    kind: BoundaryKind
    parent: str
    rows: Rows
    recipe: Recipe
    instruction: str
    stamp: int
    """Nanoseconds: when the newest observation was made; 0 before the first."""
    measured: tuple[float, ...]
    """Joint positions of that observation, in the checkpoint's order; rad or m."""
    start: str = ""
    """Name of the capsule that keeps the start of this lineage's episode."""
    revision: int = 0
    """How often it was amended in place: a cursor, a dropped plan, another key."""
    parent_revision: int = 0

    @property
    def cursors(self) -> Mapping[str, int]:
        """Live rows by cursor name."""
        return self.rows.ends


@dataclass(frozen=True, slots=True, eq=False)
class JournalEntry:
    """Small state at a boundary; its rows too where a later stage was going to overwrite them."""

    boundary: Boundary
    small: Saved
    rows: Saved | None = None

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.small.nbytes + (self.rows.nbytes if self.rows else 0)


class Journal:
    """The newest boundaries' entries within a byte budget; the newest one always stays."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.nbytes = 0
        self._entries: OrderedDict[str, JournalEntry] = OrderedDict()

    def put(self, entry: JournalEntry) -> None:
        """Add an entry, or replace the one of the same boundary; the oldest leave when over budget."""
        self.discard(entry.boundary.id)
        self._entries[entry.boundary.id] = entry
        self.nbytes += entry.nbytes
        while self.nbytes > self.budget_bytes and self.discard_oldest():
            pass

    def discard_oldest(self) -> bool:
        """Let the oldest entry go; False where only the newest is left, which stays."""
        if len(self._entries) <= 1:
            return False
        self.discard(next(iter(self._entries)))
        return True

    def discard(self, boundary_id: str) -> None:
        """Forget an entry, if there is one."""
        entry = self._entries.pop(boundary_id, None)
        if entry is not None:
            self.nbytes -= entry.nbytes

    def get(self, boundary_id: str) -> JournalEntry | None:
        """The entry of a boundary; None once it has left."""
        return self._entries.get(boundary_id)

    def entries(self) -> list[JournalEntry]:
        """All entries, the oldest first."""
        return list(self._entries.values())
