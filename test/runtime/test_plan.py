# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from flashrt_ros.runtime.plan import split


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        (0, []),
        (1, [(1, 1)]),
        (9, [(32, 9)]),
        (32, [(32, 32)]),
        (64, [(64, 64)]),
        (150, [(64, 64), (64, 64), (32, 22)]),
    ],
)
def test_split_covers_a_segment_with_the_smallest_padding(rows: int, parts: list[tuple[int, int]]) -> None:
    assert split(rows, (64, 32, 1)) == parts


def test_each_stage_is_captured_once(head: Any) -> None:
    for value in range(20):
        head.append(value)
    assert head.plan.backend.captures == 1


def test_a_fault_is_named_and_cleared(head: Any) -> None:
    for step in head.model.append(-1).steps:
        head.plan.run(step)
    assert head.plan.fence() == "value is negative"
    head.plan.clear_faults()
    assert head.plan.fence() == ""


def test_the_manifest_names_layout_and_numerics(head: Any) -> None:
    manifest = head.plan.manifest()
    assert "float32 [64, 2] context rows=position" in manifest["layout"]["rows"]
    assert manifest["numerics"]["backend"] == "cpu"
    assert manifest["numerics"]["threads"] == "1"
    assert manifest["config"] == {"name": "adder"}
