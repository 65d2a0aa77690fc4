# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest

from flashrt_ros.policy.contract import Contract, load_contract
from flashrt_ros.policy.contract_action import Command, SafetyGroup
from flashrt_ros.policy.contract_keys import Conversion
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

TEXT = """
observation:
  images: {front: {topic: front, type: sensor_msgs/msg/Image, qos: reliable, max_age: 0.3}}
  state: {topic: joint_states, type: sensor_msgs/msg/JointState, joints: [a, b, c], max_age: 0.3}
heartbeat_timeout: 0.5
action:
  joints: [b, a]
  rate: 10.0
  mode: absolute
  start_tolerance: 0.15
  threshold: 3
"""
LIMITS = "{position: {a: [-1.0, 1.0], b: [-2.0, 2.0]}, step: {a: 0.1, b: 0.2}}"
TRAJECTORY = "{topic: command, type: trajectory_msgs/msg/JointTrajectory%s}"
POINT = "{topic: command, type: sensor_msgs/msg/JointState%s}"


def load(
    folder: Path,
    *,
    limits: str = LIMITS,
    command: str = POINT % "",
    safety: str = "hold",
    start_tolerance: str = "0.15",
    more: str = "",
    end: str = "",
) -> Contract:
    file = folder / "contract.yaml"
    text = TEXT.replace("0.15", start_tolerance)
    file.write_text(f"{text}  limits: {limits}\n  command: {command}\n  safety: {safety}\n{more}{end}")
    return load_contract(file)


def test_what_is_optional_has_the_plain_meaning(tmp_path: Path) -> None:
    action = load(tmp_path).action
    assert (action.strategy, action.outputs) == ("async", None)
    assert action.commands == (Command("command", "sensor_msgs/msg/JointState", ("b", "a"), "point", 0.0, "position"),)
    assert action.safety == (SafetyGroup(("b", "a"), "hold", None),)


@pytest.mark.parametrize("strategy", ["sync", "async", "rtc"])
def test_a_strategy_is_kept(tmp_path: Path, strategy: str) -> None:
    assert load(tmp_path, more=f"  strategy: {strategy}\n").action.strategy == strategy


def test_velocities_bound_the_steps(tmp_path: Path) -> None:
    both = LIMITS.replace("}}", "}, velocity: {a: 0.5, b: 5.0}}")
    assert load(tmp_path, limits=both).action.limits.step == (0.2, 0.05)
    alone = "{position: {a: [-1.0, 1.0], b: [-2.0, 2.0]}, velocity: {a: 0.5, b: 5.0}}"
    assert load(tmp_path, limits=alone).action.limits.step == (0.5, 0.05)


def test_a_start_tolerance_may_be_that_of_each_joint(tmp_path: Path) -> None:
    assert load(tmp_path, start_tolerance="{a: 0.1, b: 0.002}").action.start_tolerance == (0.002, 0.1)


def test_joints_that_are_not_named_may_lag_behind(tmp_path: Path) -> None:
    assert load(tmp_path).action.limits.following is None
    limited = LIMITS.replace("}}", "}, following: {b: 0.5}}")
    assert load(tmp_path, limits=limited).action.limits.following == (0.5, float("inf"))


def test_an_acceleration_bounds_the_change_of_a_step(tmp_path: Path) -> None:
    assert load(tmp_path).action.limits.acceleration is None
    limited = LIMITS.replace("}}", "}, acceleration: {a: 5.0, b: 2.0}}")
    assert load(tmp_path, limits=limited).action.limits.acceleration == (0.02, 0.05)


VELOCITY = POINT % ", interface: velocity"
SPEEDS = "{position: {a: [-1.0, 1.0], b: [-2.0, 2.0]}, velocity: {a: 0.5, b: 5.0}}"


@pytest.mark.parametrize("safety", ["hold", "zero", "release"])
def test_joints_may_be_commanded_by_velocity(tmp_path: Path, safety: str) -> None:
    action = load(tmp_path, command=VELOCITY, limits=SPEEDS, safety=safety).action
    assert (action.interface, action.safety[0].action) == ("velocity", safety)
    assert action.limits.step == (0.5, 0.05)


EACH = "[{topic: left, type: sensor_msgs/msg/JointState, joints: [a]}, "
EACH += "{topic: %s, type: std_msgs/msg/Float64MultiArray, joints: [%s]%s}]"


def test_joints_may_have_command_topics_of_their_own(tmp_path: Path) -> None:
    action = load(tmp_path, command=EACH % ("right", "b", "")).action
    assert action.commands == (
        Command("left", "sensor_msgs/msg/JointState", ("a",)),
        Command("right", "std_msgs/msg/Float64MultiArray", ("b",)),
    )
    assert (action.joints, action.interface, action.max_handover) == (("b", "a"), "position", 0.0)


def test_a_command_without_names_is_released_whole(tmp_path: Path) -> None:
    groups = "{groups: [{joints: [a], action: hold}, {joints: [b], action: release}]}"
    assert load(tmp_path, command=EACH % ("right", "b", ""), safety=groups).action.safety[1].action == "release"


def test_velocities_are_converted_by_scale_alone(tmp_path: Path) -> None:
    scaled = "convert: {a: {scale: 57.3, offset: 10.0}}, "
    assert "joints: [a, b, c], " in TEXT
    file = tmp_path / "scaled.yaml"
    text = TEXT.replace("joints: [a, b, c], ", f"joints: [a, b, c], {scaled}")
    file.write_text(f"{text}  limits: {SPEEDS}\n  command: {VELOCITY}\n  safety: zero\n")
    contract = load_contract(file)
    assert contract.action.conversions == (Conversion(), Conversion(57.3, 0.0))
    assert contract.observation.conversion("a") == Conversion(57.3, 10.0)
    by_position = text + f"  limits: {SPEEDS}\n  command: {POINT % ''}\n  safety: hold\n"
    file.write_text(by_position.replace("offset: 10.0", "offset: 0.0"))
    assert load_contract(file).manifest()["actions"] != contract.manifest()["actions"]


def test_a_slice_of_the_outputs(tmp_path: Path) -> None:
    assert load(tmp_path, more="  outputs: [4, 6]\n").action.outputs == (4, 6)


def test_a_trajectory_is_handed_over_for_a_bounded_time(tmp_path: Path) -> None:
    (command,) = load(tmp_path, command=TRAJECTORY % ", handover: trajectory, max_handover: 0.2").action.commands
    assert (command.handover, command.max_handover) == ("trajectory", 0.2)


def test_safety_by_group(tmp_path: Path) -> None:
    groups = "{groups: [{joints: [a], action: hold, timeout: 5}, {joints: [b], action: release}]}"
    assert load(tmp_path, safety=groups).action.safety == (
        SafetyGroup(("a",), "hold", 5.0),
        SafetyGroup(("b",), "release", None),
    )


GROUPS = "{groups: [{joints: [a], action: hold}, {joints: [%s], action: %s}]}"


@pytest.mark.parametrize(
    ("changes", "line", "says"),
    [
        ({"more": "  strategy: fast\n"}, 15, "action.strategy: 'fast' is not known; use one of: sync, async, rtc"),
        ({"more": "  outputs: [0, 3]\n"}, 15, "action.outputs: [0, 3] is no slice of 2 outputs"),
        ({"more": "  outputs: [2, 0]\n"}, 15, "action.outputs: [2, 0] is no slice of 2 outputs"),
        ({"more": "  outputs: [2]\n"}, 15, "action.outputs: [2] is no slice"),
        ({"more": "  outputs: [-1, 1]\n"}, 15, "action.outputs[0]: -1 is out of range"),
        ({"limits": LIMITS.replace("step", "stap")}, 12, "action.limits: 'step' is missing"),
        ({"limits": LIMITS.replace("}}", "}, velocity: {a: 1.0}}")}, 12, "limits.velocity: 'b' of action.joints"),
        ({"limits": LIMITS.replace("}}", "}, velocity: {a: 1, b: 0}}")}, 12, "velocity.b: 0 is out of range"),
        ({"limits": LIMITS.replace("}}", "}, acceleration: {b: 1}}")}, 12, "limits.acceleration: 'a' of action.joints"),
        ({"start_tolerance": "{a: 0.1}"}, 10, "start_tolerance: 'b' of action.joints is missing"),
        ({"start_tolerance": "{a: 0.1, b: 0}"}, 10, "start_tolerance.b: 0 is out of range"),
        ({"limits": LIMITS.replace("}}", "}, following: {c: 1}}")}, 12, "limits.following: 'c' is not in action"),
        ({"limits": LIMITS.replace("}}", "}, following: {b: 0}}")}, 12, "following.b: 0 is out of range"),
        ({"limits": LIMITS.replace("}}", "}, following: {b: 0.001}}")}, 12, "following.b: 0.001 is less than the "),
        ({"limits": LIMITS.replace("}}", "}, acceleration: {a: 0, b: 1}}")}, 12, "acceleration.a: 0 is out of range"),
        (
            {
                "limits": LIMITS.replace("}}", "}, acceleration: {a: 1, b: 1}}"),
                "end": "lockstep: {apply_after: 1}\n",
            },
            15,
            "take limits.acceleration out",
        ),
        ({"command": POINT % ", handover: trajectory, max_handover: 1"}, 13, "needs the type trajectory_msgs"),
        ({"command": TRAJECTORY % ", handover: trajectory"}, 13, "action.command: 'max_handover' is missing"),
        ({"command": TRAJECTORY % ", max_handover: 1"}, 13, "command.max_handover: is not a key"),
        ({"command": TRAJECTORY % ", handover: trajectory, max_handover: 0"}, 13, "max_handover: 0 is out of range"),
        ({"command": TRAJECTORY % ", handover: all"}, 13, "handover: 'all' is not known"),
        ({"safety": "zero"}, 14, "action.safety: 'zero' stops a joint that is commanded by velocity;"),
        ({"safety": GROUPS % ("b", "zero")}, 14, "safety.groups[1].action: 'zero' stops a joint"),
        ({"command": VELOCITY}, 12, "action.limits: 'velocity' is missing"),
        (
            {"command": VELOCITY, "limits": SPEEDS.replace("}}", "}, following: {a: 1.0}}")},
            12,
            "action.limits.following: the commands are velocities",
        ),
        (
            {"command": VELOCITY, "limits": SPEEDS.replace("}}", "}, step: {a: 1, b: 1}}")},
            12,
            "bound them by",
        ),
        (
            {"command": TRAJECTORY % ", interface: velocity"},
            13,
            "JointTrajectory is a way from",
        ),
        ({"command": POINT % ", interface: effort"}, 13, "interface: 'effort' is not known; use one of: position, vel"),
        (
            {"command": VELOCITY, "limits": SPEEDS, "end": "lockstep: {apply_after: 1}\n"},
            15,
            "use action.command.interface: position",
        ),
        ({"command": EACH % ("right", "a", "")}, 13, "action.command: 'a' is in two commands; put each joint into one"),
        ({"command": EACH.partition(", {")[0] + "]"}, 13, "command: 'b' of action.joints is in no command"),
        ({"command": EACH % ("right", "c", "")}, 13, "command[1].joints: 'c' is not in action.joints (b, a)"),
        ({"command": EACH % ("left", "b", "")}, 13, "command: 'left' is given twice"),
        (
            {"command": EACH % ("right", "b", ", interface: velocity")},
            13,
            "give them the same interface, not ['position'",
        ),
        (
            {"command": EACH % ("right", "b", ""), "end": "lockstep: {apply_after: 1}\n"},
            15,
            "give one action.command for all joints",
        ),
        ({"safety": GROUPS % ("a, b", "hold")}, 14, "safety.groups: 'a' is in two groups"),
        ({"safety": GROUPS % ("c", "hold")}, 14, "groups[1].joints: 'c' is not in action.joints (b, a)"),
        ({"safety": "{groups: [{joints: [a], action: hold}]}"}, 14, "groups: 'b' of action.joints is in no group"),
        ({"safety": GROUPS % ("b", "release, timeout: 1")}, 14, "groups[1].timeout: a release has no end"),
        ({"safety": GROUPS % ("b", "hold, timeout: 0")}, 14, "groups[1].timeout: 0 is out of range"),
        ({"safety": "[hold]"}, 14, "action.safety: expected 'key: value' lines"),
        ({"more": "  strategy: sync\n", "end": "lockstep: {apply_after: 1}\n"}, 16, "take action.strategy sync out"),
        (
            {
                "command": TRAJECTORY % ", handover: trajectory, max_handover: 1",
                "end": "lockstep: {apply_after: 1}\n",
            },
            15,
            "lockstep: the robot waits for the command of each tick",
        ),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path: Path, changes: dict[str, str], line: int, says: str) -> None:
    with pytest.raises(FlashrtError) as refused:
        load(tmp_path, **changes)
    assert refused.value.code is ErrorCode.BAD_CONTRACT
    assert f"contract.yaml:{line}: " in str(refused.value)
    assert says in str(refused.value)


def test_velocities_relative_to_positions_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "contract.yaml"
    text = TEXT.replace("mode: absolute", "mode: delta")
    file.write_text(f"{text}  limits: {SPEEDS}\n  command: {VELOCITY}\n  safety: zero\n")
    with pytest.raises(FlashrtError, match=r"contract\.yaml:9: action\.mode: delta is relative to the measured"):
        load_contract(file)
