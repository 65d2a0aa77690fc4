# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from flashrt_ros.policy.contract_action import SafetyGroup
from flashrt_ros.policy.safety import SafetyAction


def test_held_joints_keep_the_order_of_the_command() -> None:
    groups = [SafetyGroup(("c", "a"), "hold", 3.0), SafetyGroup(("b",), "release")]
    safety = SafetyAction(("a", "b", "c"), groups)
    assert (safety.joints, safety.columns, safety.timeout) == (("a", "c"), [0, 2], 3.0)


def test_a_release_of_all_holds_none() -> None:
    safety = SafetyAction(("a", "b"), [SafetyGroup(("a", "b"), "release")])
    assert (safety.joints, safety.timeout) == ((), None)
