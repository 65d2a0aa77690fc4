# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
import torch

from flashrt_ros.runtime.backend import CpuBackend
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.plan import AT_CURSOR


def test_rollback_copies_small_state_alone_while_its_rows_stand(head: Any) -> None:
    head.append(1, 2)
    before = head.bytes()
    target = head.live.journal.get("b1")
    head.append(3)
    assert target is not None
    assert head.bytes() != before
    copied = head.live.return_to(target, [])
    assert head.bytes() == before
    assert copied == target.small.nbytes


def test_rows_behind_the_cursor_stand_until_they_are_overwritten(head: Any) -> None:
    head.append(1)
    head.append(2)
    ahead = head.bytes()
    first, second = (head.live.journal.get(name) for name in ("b1", "b2"))
    assert first is not None
    assert second is not None
    head.live.return_to(first, [])
    assert head.live.return_to(second, []) == second.small.nbytes
    assert head.bytes() == ahead
    head.live.return_to(first, [])
    head.append(5)
    with pytest.raises(FlashrtError, match="overwritten") as refused:
        head.live.return_to(second, [])
    assert refused.value.code is ErrorCode.NOT_IN_JOURNAL


def test_a_capsule_of_another_branch_copies_only_the_rows_that_differ(head: Any) -> None:
    head.append(1, 2, 3)
    fork = head.live.journal.get("b1")
    head.append(4)
    branch_bytes = head.bytes()
    boundary, small, rows = head.live.saved_head()
    assert fork is not None
    head.live.return_to(fork, [])
    head.append(9, 9)
    copied = head.live.adopt(boundary, small, rows)
    assert head.bytes() == branch_bytes
    assert copied == small.nbytes + 1 * head.plan.buffers.specs["rows"].row_nbytes


def test_a_failed_stage_leaves_the_last_boundary(head: Any) -> None:
    head.append(1)
    before, boundary = head.bytes(), head.live.head
    with pytest.raises(ArithmeticError, match="value is negative"):
        head.append(2, -3)
    assert head.bytes() == before
    assert head.live.head is boundary


def test_a_failed_first_stage_leaves_nothing(head: Any) -> None:
    empty = head.bytes()
    with pytest.raises(ArithmeticError):
        head.append(-1)
    assert head.bytes() == empty
    assert head.live.head is None


def test_overwritten_rows_are_journalled_before_the_stage_that_overwrites_them(head: Any) -> None:
    head.append(1, 2)
    before = head.bytes()
    with head.live.transaction(list):
        head.live.start_over(("context",))
        head.run(head.model.append(7, 8, 9, first_row=0))
        during = head.live.saved_head()
        head.commit()
    entry = head.live.journal.get("b1")
    assert entry is not None
    assert entry.rows is not None
    assert during[0].id == "b1"
    assert during[2] is entry.rows
    head.live.return_to(entry, [])
    assert head.bytes() == before


def test_a_failure_after_overwriting_brings_the_rows_back(head: Any) -> None:
    head.append(1, 2)
    before = head.bytes()

    def overwrite_and_fail() -> None:
        with head.live.transaction(list):
            head.live.start_over(("context",))
            head.run(head.model.append(7, 8, first_row=0))
            head.commit()
            head.run(head.model.append(-1, first_row=AT_CURSOR))

    with pytest.raises(ArithmeticError):
        overwrite_and_fail()
    assert head.bytes() == before


def test_a_full_device_lets_the_oldest_boundaries_go(head: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (1, 2, 3):
        head.append(value)
    real, entries = head.plan.backend.save, head.live.journal.entries

    def save(buffers: Any, ranges: Any) -> Any:
        if len(entries()) > 2:
            raise FlashrtError(ErrorCode.OVER_BUDGET, "the device is full")
        return real(buffers, ranges)

    monkeypatch.setattr(head.plan.backend, "save", save)
    head.append(4)
    assert [entry.boundary.id for entry in entries()] == ["b2", "b3", "b4"]


def test_a_plan_computes_with_its_own_threads_whatever_another_one_took(head: Any) -> None:
    CpuBackend(None, threads=2)
    with head.live.transaction(list):
        assert torch.get_num_threads() == 1
    CpuBackend(None, threads=2)
    head.plan.run(head.model.append(1).steps[0])
    assert torch.get_num_threads() == 1
