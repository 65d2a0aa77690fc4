# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from flashrt_ros.runtime.progress import part_of


def test_a_part_of_a_work_is_told_as_such() -> None:
    told: list[float] = []
    for part in (0.0, 0.5, 1.0):
        part_of(told.append, 0.5, 0.75)(part)
    assert told == [0.5, 0.625, 0.75]
