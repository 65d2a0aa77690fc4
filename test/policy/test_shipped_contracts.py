# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The shipped contracts against what the makers of the robots say."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from flashrt_ros.policy.contract import Contract, load_contract

CONFIG = Path(__file__).resolve().parents[2] / "config"

# aloha_vx300s.urdf.xacro (interbotix_ros_manipulators, humble), the finger in m: low, high, velocity
VX300S = {
    "waist": (-math.pi + 1e-5, math.pi - 1e-5, math.pi),
    "shoulder": (math.radians(-106), math.radians(72), math.pi),
    "elbow": (math.radians(-101), math.radians(92), math.pi),
    "forearm_roll": (-math.pi + 1e-5, math.pi - 1e-5, math.pi),
    "wrist_angle": (math.radians(-107), math.radians(128), math.pi),
    "wrist_rotate": (-math.pi + 1e-5, math.pi - 1e-5, math.pi),
    "gripper": (0.021, 0.057, 1.0),
}
# robots/fr3/joint_limits.yaml (franka_description)
FR3 = {
    "fr3_joint1": (-2.7437, 2.7437, 2.62),
    "fr3_joint2": (-1.7837, 1.7837, 2.62),
    "fr3_joint3": (-2.9007, 2.9007, 2.62),
    "fr3_joint4": (-3.0421, -0.1518, 2.62),
    "fr3_joint5": (-2.8065, 2.8065, 5.26),
    "fr3_joint6": (0.5445, 4.5169, 4.18),
    "fr3_joint7": (-3.0159, 3.0159, 5.26),
}
# so101_new_calib.urdf (SO-ARM100)
SO101 = {
    "shoulder_pan": (-1.91986, 1.91986, 10.0),
    "shoulder_lift": (-1.74533, 1.74533, 10.0),
    "elbow_flex": (-1.69, 1.69, 10.0),
    "wrist_flex": (-1.65806, 1.65806, 10.0),
    "wrist_roll": (-2.74385, 2.84121, 10.0),
    "gripper": (-0.174533, 1.74533, 10.0),
}
ROBOTS = {
    "aloha": {f"{side}_{joint}": limits for side in ("left", "right") for joint, limits in VX300S.items()},
    "franka": FR3,
    "so101": SO101,
}
# rate_limiting.h (libfranka): at q no faster than -offset + sqrt(slope * (high - q)), the same towards low
FR3_SLOWS = {
    "fr3_joint1": (0.30, 12.0, -2.7501, 2.7501),
    "fr3_joint2": (0.20, 5.17, -1.7918, 1.7918),
    "fr3_joint3": (0.20, 7.00, -2.9065, 2.9065),
    "fr3_joint4": (0.30, 8.00, -3.0481, -0.1458),
    "fr3_joint5": (0.35, 34.0, -2.8101, 2.8101),
    "fr3_joint6": (0.35, 11.0, 0.54092, 4.5205),
    "fr3_joint7": (0.35, 34.0, -3.0196, 3.0196),
}


def contract_of(robot: str) -> Contract:
    return load_contract(CONFIG / f"{robot}_contract.yaml")


@pytest.mark.parametrize("robot", ROBOTS)
def test_limits_are_within_those_of_the_maker(robot: str) -> None:
    action, limits = contract_of(robot).action, contract_of(robot).action.limits
    assert set(action.joints) == set(ROBOTS[robot])
    for joint, low, high, step in zip(action.joints, limits.low, limits.high, limits.step, strict=True):
        lowest, highest, fastest = ROBOTS[robot][joint]
        assert lowest <= low < high <= highest, joint
        assert step * action.rate <= fastest, joint


def test_a_franka_is_nowhere_commanded_faster_than_it_allows() -> None:
    action = contract_of("franka").action
    limits = action.limits
    for joint, low, high, step in zip(action.joints, limits.low, limits.high, limits.step, strict=True):
        offset, slope, lowest, highest = FR3_SLOWS[joint]
        for room in (low - lowest, highest - high):
            assert step * action.rate <= math.sqrt(slope * room) - offset, joint


@pytest.mark.parametrize(
    ("robot", "joint", "ends"),
    [
        ("aloha", "left_gripper", {0.0440: 0.0, 0.0579: 1.0}),
        ("so101", "gripper", {-0.174533: 0.0, 1.74533: 100.0}),
        ("so101", "elbow_flex", {math.pi / 2: 90.0}),
    ],
)
def test_values_are_what_policies_were_trained_with(robot: str, joint: str, ends: dict[float, float]) -> None:
    conversion = contract_of(robot).observation.conversion(joint)
    for measured, trained in ends.items():
        assert measured * conversion.scale + conversion.offset == pytest.approx(trained, abs=1e-3)


@pytest.mark.parametrize("robot", ROBOTS)
def test_arms_are_seen_to_follow_and_grippers_may_squeeze(robot: str) -> None:
    action = contract_of(robot).action
    assert action.limits.following is not None
    squeezes = {joint for joint, lag in zip(action.joints, action.limits.following, strict=True) if math.isinf(lag)}
    assert squeezes == {joint for joint in action.joints if "gripper" in joint}
