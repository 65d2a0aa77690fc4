# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch

from flashrt_ros.runtime.backend import Saved
from flashrt_ros.runtime.buffers import Range
from flashrt_ros.runtime.lineage import Boundary, Journal, JournalEntry, Rows, common
from flashrt_ros.runtime.recipe import Act, Recipe


def chain(start: Rows, *ends: int) -> Rows:
    for end in ends:
        start = start.append({"position": end})
    return start


def test_chains_share_the_rows_of_their_common_links() -> None:
    trunk = chain(Rows(), 4, 9)
    left, right = chain(trunk, 12), chain(trunk, 10, 20)
    assert common(left, right) is trunk
    assert common(trunk, right) is trunk
    assert common(left, chain(Rows(), 4, 9)) is None


def test_until_stops_at_the_last_append_before_a_row() -> None:
    rows = chain(Rows(), 4, 9, 12)
    assert rows.until("position", 11).ends == {"position": 9}
    assert rows.until("position", 12) is rows
    assert rows.until("position", 3).ends == {}


def entry(name: str, nbytes: int) -> JournalEntry:
    boundary = Boundary(name, "act", "", Rows(), Recipe(None, Act()), "", 0, ())
    return JournalEntry(boundary, Saved((Range("device", 0, nbytes),), (torch.zeros(nbytes, dtype=torch.uint8),)))


def test_the_journal_drops_its_oldest_but_never_its_newest() -> None:
    journal = Journal(budget_bytes=100)
    for name in "abc":
        journal.put(entry(name, 40))
    assert [kept.boundary.id for kept in journal.entries()] == ["b", "c"]
    journal.put(entry("big", 1000))
    assert [kept.boundary.id for kept in journal.entries()] == ["big"]
    assert journal.nbytes == 1000


def test_an_entry_of_the_same_boundary_replaces_the_older_one() -> None:
    journal = Journal(budget_bytes=100)
    journal.put(entry("a", 40))
    journal.put(entry("a", 60))
    assert journal.nbytes == 60
    assert len(journal.entries()) == 1
