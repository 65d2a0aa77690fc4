# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest

from flashrt_ros.policy.contract import Contract, load_contract
from flashrt_ros.policy.contract_action import SafetyGroup
from flashrt_ros.policy.safety import SafetyAction
from flashrt_ros.runtime.errors import FlashrtError


def test_held_joints_keep_the_order_of_the_command() -> None:
    groups = [SafetyGroup(("c", "a"), "hold", 3.0), SafetyGroup(("b",), "release")]
    safety = SafetyAction(("a", "b", "c"), groups)
    assert (safety.joints, safety.columns, safety.timeout) == (("a", "c"), [0, 2], 3.0)


def test_a_release_of_all_holds_none() -> None:
    safety = SafetyAction(("a", "b"), [SafetyGroup(("a", "b"), "release")])
    assert (safety.joints, safety.timeout) == ((), None)


def load(tmp_path: Path, old: str, new: str, *, lockstep: bool = False) -> Contract:
    """The demo's contract, with another text."""
    text = (Path(__file__).resolve().parents[2] / "config" / "demo_contract.yaml").read_text()
    assert old in text
    text = text.replace(old, new)
    if not lockstep:
        text = text.replace("lockstep: {apply_after: 2}", "")
    file = tmp_path / "contract.yaml"
    file.write_text(text)
    return load_contract(file)


SOME = "safety: {groups: [{joints: [shoulder_pan, shoulder_lift, elbow, wrist_pitch, wrist_roll], action: hold}, "
SOME += "{joints: [gripper], action: release}]}"


def test_some_joints_can_be_released_where_a_command_names_them(tmp_path: Path) -> None:
    action = load(tmp_path, "safety: hold", SOME).action
    assert SafetyAction(action.joints, action.safety).joints == action.joints[:5]


def test_a_command_without_names_cannot_leave_joints_out(tmp_path: Path) -> None:
    load(tmp_path, "sensor_msgs/msg/JointState}\n  safety: hold", "std_msgs/msg/Float64MultiArray}\n  safety: release")
    with pytest.raises(FlashrtError, match=r"action\.safety\.groups: .*Float64MultiArray.*released"):
        load(tmp_path, "sensor_msgs/msg/JointState}\n  safety: hold", f"std_msgs/msg/Float64MultiArray}}\n  {SOME}")


def test_a_robot_in_lockstep_has_no_joint_to_release(tmp_path: Path) -> None:
    with pytest.raises(FlashrtError, match=r"lockstep: .*released"):
        load(tmp_path, "safety: hold", SOME, lockstep=True)
