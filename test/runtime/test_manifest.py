# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from flashrt_ros.runtime.manifest import differences


def test_differences_name_the_part_and_both_values() -> None:
    ours = {"weights": {"model.safetensors": "aa"}, "numerics": {"threads": "2"}}
    theirs = {"weights": {"model.safetensors": "bb"}, "numerics": {"threads": "2"}}
    assert differences(ours, theirs) == ["weights.model.safetensors: expected aa, found bb"]
    assert differences(ours, ours) == []


def test_an_absent_part_differs() -> None:
    assert differences({"weights": {"a": "1"}}, {}) == ["weights.a: expected 1, found None"]
