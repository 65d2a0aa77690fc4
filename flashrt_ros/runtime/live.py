# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The live state of a plan: the boundary it stands at, and the way back to others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from flashrt_ros.runtime.backend import Saved
from flashrt_ros.runtime.buffers import SCOPES, Range, Scope
from flashrt_ros.runtime.capsule import part
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary, Journal, JournalEntry, Rows, common
from flashrt_ros.runtime.plan import AT_CURSOR, Plan

RowSource = tuple[Rows, Saved]
"""Saved rows and the chain of appends that wrote them."""


class LiveState:
    """Commits boundaries, journals their small state, and loads saved ones back.

    `physical` is the chain of appends whose rows stand in the arena now. It can be longer than the head's:
    after a rollback the rows behind the cursor stand until something overwrites them. `chain` is the part
    that the present state, committed or not, may read.
    """

    def __init__(self, plan: Plan, journal_bytes: int) -> None:
        self.plan = plan
        self.journal = Journal(journal_bytes)
        self.physical = Rows()
        self.chain = self.physical
        self._head: JournalEntry | None = None
        self._before: JournalEntry | None = None
        self._in_transaction = False

    @property
    def head(self) -> Boundary | None:
        """The newest committed boundary."""
        return self._head.boundary if self._head is not None else None

    @contextmanager
    def transaction(self, sources: Callable[[], Iterable[RowSource]]) -> Iterator[None]:
        """Commit or nothing: whatever is raised inside brings the head back that stood before.

        Inside another one it is a part of that.
        """
        if self._in_transaction:
            yield
            return
        self.plan.backend.make_current()
        self._before, self._in_transaction = self._head, True
        try:
            yield
        except BaseException:
            self._recover(sources())
            raise
        finally:
            self._before, self._in_transaction = None, False

    def commit(self, boundary: Boundary) -> None:
        """Make the arena's present state the head, and journal its small state."""
        small = self._save(self.plan.buffers.small_ranges())
        same = self._head if self._head is not None and self._head.boundary.id == boundary.id else None
        self._set_head(JournalEntry(boundary, small, same.rows if same is not None else None))
        # A boundary without rows overwrites none: what stood in the arena before stands there still.
        if self.chain.ends and common(self.chain, self.physical) is not self.chain:
            self.physical = self.chain

    def start_over(self, scopes: Collection[Scope]) -> None:
        """Zero the state of some scopes; without a context, rows are written from the first on."""
        for spec in self.plan.buffers.state(scopes):
            if not spec.rows:
                self.plan.buffers[spec.name].zero_()
        if "context" in scopes:
            self.chain = Rows()

    def will_write(self, first_row: int, rows: int) -> None:
        """Announce that `rows` rows from `first_row` (or AT_CURSOR) on are about to be written.

        Rows of the boundary before this transaction that would be lost are kept first.
        """
        if first_row == AT_CURSOR:
            first_row = self.chain.ends.get("position", 0)
        if self._before is not None and self._before.boundary.cursors.get("position", 0) > first_row:
            self.keep_rows_before()
        self.physical = self.chain.until("position", first_row)
        self.chain = self.physical.append({"position": first_row + rows})

    def wrote(self, rows: int) -> None:
        """Of the rows announced last only the first `rows` were written to stay."""
        before = self.chain.parent
        assert before is not None
        self.chain = before.append({"position": before.ends.get("position", 0) + rows})

    def keep_rows_before(self) -> None:
        """Keep the rows of the boundary before this transaction, so that overwriting them loses nothing."""
        before = self._before
        if before is None or before.rows is not None:
            return
        kept = replace(before, rows=self._save_rows(before.boundary))
        self._before = kept
        if self._head is before:
            self._head = kept
        if self.journal.get(kept.boundary.id) is not None:
            self.journal.put(kept)

    def saved_head(self) -> tuple[Boundary, Saved, Saved]:
        """The last committed boundary with its small state and rows, also while a stage writes newer ones."""
        return self._saved(self._before if self._in_transaction else self._head)

    def committed(self) -> tuple[Boundary, Saved, Saved]:
        """The head that this very transaction has committed, with its small state and rows."""
        return self._saved(self._head)

    def load(
        self,
        boundary: Boundary,
        small: Saved,
        sources: Iterable[RowSource],
        scopes: Collection[Scope] = SCOPES,
    ) -> int:
        """Load a boundary's small state, and those of its rows that do not stand in the arena any more.

        Returns:
            Bytes copied.

        Raises:
            FlashrtError: NOT_IN_JOURNAL, no source holds the missing rows; nothing was changed.
        """
        rows = self._missing_rows(boundary, sources, scopes)
        wanted = part(small, self.plan.buffers.small_ranges(scopes))
        if rows is not None:
            self.keep_rows_before()
            self.physical = Rows()
        self._load_in_order([wanted] if rows is None else [rows, wanted])
        if rows is not None:
            self.physical = boundary.rows
        self.chain = boundary.rows
        return wanted.nbytes + (rows.nbytes if rows is not None else 0)

    def adopt(self, boundary: Boundary, small: Saved, rows: Saved) -> int:
        """Load a boundary from saved bytes and make it the head; the bytes copied."""
        copied = self.load(boundary, small, [(boundary.rows, rows)])
        self._set_head(JournalEntry(boundary, small))
        return copied

    def return_to(self, entry: JournalEntry, sources: Iterable[RowSource]) -> int:
        """Make a journalled boundary the head again; the bytes copied."""
        own = [(entry.boundary.rows, entry.rows)] if entry.rows is not None else []
        copied = self.load(entry.boundary, entry.small, itertools.chain(own, sources))
        self._set_head(entry)
        return copied

    def check_rows(self, entry: JournalEntry, sources: Iterable[RowSource]) -> None:
        """Raise NOT_IN_JOURNAL if rows that `return_to` would need are nowhere."""
        own = [(entry.boundary.rows, entry.rows)] if entry.rows is not None else []
        self._missing_rows(entry.boundary, itertools.chain(own, sources), SCOPES)

    def _recover(self, sources: Iterable[RowSource]) -> None:
        before = self._before
        if before is None:
            self.start_over(SCOPES)
            self._head = None
            return
        self.return_to(before, sources)

    def _set_head(self, entry: JournalEntry) -> None:
        self._head = entry
        self.journal.put(entry)

    def _missing_rows(
        self, boundary: Boundary, sources: Iterable[RowSource], scopes: Collection[Scope]
    ) -> Saved | None:
        shared = common(boundary.rows, self.physical)
        standing = shared.ends if shared is not None else {}
        ranges = self.plan.buffers.row_ranges(boundary.cursors, standing, scopes)
        if not ranges:
            return None
        for chain, saved in sources:
            if common(chain, boundary.rows) is boundary.rows:
                return part(saved, ranges)
        raise FlashrtError(
            ErrorCode.NOT_IN_JOURNAL,
            f"rows of boundary {boundary.id} ({boundary.kind}) have been overwritten and no capsule holds them; "
            "take a snapshot before branching away from a boundary that is needed again",
        )

    def _load_in_order(self, copies: list[Saved]) -> None:
        """Device memory first: host state is swapped in only when those copies are known good."""
        backend, buffers = self.plan.backend, self.plan.buffers
        for memory in ("device", "host"):
            for saved in copies:
                ranges = [held for held in saved.ranges if held.memory == memory]
                backend.load(buffers, part(saved, ranges))
            trouble = backend.fence()
            if trouble:
                raise FlashrtError(ErrorCode.DEVICE, f"copying saved state back failed: {trouble}")

    def _saved(self, entry: JournalEntry | None) -> tuple[Boundary, Saved, Saved]:
        if entry is None:
            raise not_begun()
        return entry.boundary, entry.small, entry.rows if entry.rows is not None else self._save_rows(entry.boundary)

    def _save_rows(self, boundary: Boundary) -> Saved:
        return self._save(self.plan.buffers.row_ranges(boundary.cursors))

    def _save(self, ranges: Sequence[Range]) -> Saved:
        """Save ranges; where the device has no room for them, the journal's oldest boundaries make it."""
        while True:
            try:
                return self.plan.backend.save(self.plan.buffers, ranges)
            except FlashrtError as refused:
                if refused.code is not ErrorCode.OVER_BUDGET or not self.journal.discard_oldest():
                    raise


def not_begun() -> FlashrtError:
    """What every verb answers that needs an episode."""
    return FlashrtError(ErrorCode.NOT_BEGUN, "no episode has begun; call begin, or run the policy with an instruction")
