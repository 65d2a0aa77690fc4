# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest

from flashrt_ros.policy.contract import Contract, load_contract
from flashrt_ros.policy.contract_keys import Conversion
from flashrt_ros.policy.contract_observation import TextSource
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

FRONT = "front: {topic: front, type: sensor_msgs/msg/Image, qos: reliable, max_age: 0.3}"
ARM = "{topic: arm/states, type: sensor_msgs/msg/JointState, joints: [a, b], max_age: 0.3}"
ACTION = """
action:
  joints: [a, b]
  rate: 10.0
  mode: absolute
  limits: {position: {a: [-1.0, 1.0], b: [-1.0, 1.0]}, step: {a: 0.1, b: 0.1}}
  start_tolerance: 0.15
  threshold: 3
  command: {topic: joint_command, type: sensor_msgs/msg/JointState}
  safety: hold
heartbeat_timeout: 0.5
"""


def load(folder: Path, *, front: str = FRONT, state: str = ARM, more: str = "", end: str = "") -> Contract:
    file = folder / "contract.yaml"
    file.write_text(f"observation:\n  images:\n    {front}\n  state: {state}\n{more}{ACTION}{end}")
    return load_contract(file)


def image(*keys: str) -> str:
    return FRONT.replace("}", ", " + ", ".join(keys) + "}")


def arm(*keys: str) -> str:
    return ARM.replace("}", ", " + ", ".join(keys) + "}")


def listed(*sources: str) -> str:
    return "".join(f"\n    - {source}" for source in sources)


def test_what_is_optional_has_the_plain_meaning(tmp_path: Path) -> None:
    observed = load(tmp_path).observation
    (front,), (state,) = observed.images, observed.state
    assert (front.encoding, front.align, front.stamp, front.depth_range) == ("rgb8", "hold", "header", None)
    assert (state.key, state.field, state.align, state.stamp) == ("state", "position", "hold", "header")
    assert state.conversions == (Conversion(), Conversion())
    assert observed.text is None
    assert load(tmp_path).controller_timeout == 0.0


def test_several_sources_stand_one_behind_the_other(tmp_path: Path) -> None:
    observed = load(
        tmp_path,
        state=listed(
            ARM,
            "{topic: arm/states, type: sensor_msgs/msg/JointState, field: velocity, joints: [b, a], max_age: 0.1}",
            "{topic: hand, type: std_msgs/msg/Float64MultiArray, joints: [thumb, index], max_age: 0.5}",
            "{topic: pose, type: geometry_msgs/msg/PoseStamped, fields: {x: position.x, w: orientation.w}, max_age: 1}",
            "{topic: push, type: geometry_msgs/msg/WrenchStamped, fields: {up: force.z}, max_age: 1, stamp: receive}",
        ),
    ).observation
    assert observed.names == ("a", "b", "b.velocity", "a.velocity", "thumb", "index", "x", "w", "up")
    assert [source.key for source in observed.state] == [f"state[{index}]" for index in range(5)]
    assert [source.stamp for source in observed.state] == ["header", "header", "receive", "header", "receive"]
    assert observed.state[3].joints == ("position.x", "orientation.w")
    assert [source.key for source in observed.joint_sources] == ["state[0]", "state[2]"]
    assert observed.max_age == 1.0


def test_conversions_go_by_name(tmp_path: Path) -> None:
    contract = load(tmp_path, state=arm("convert: {b: {scale: -2.0, offset: 1}}"))
    assert contract.observation.state[0].conversions == (Conversion(), Conversion(-2.0, 1.0))
    assert contract.action.conversions == (Conversion(), Conversion(-2.0, 1.0))


def test_depth_has_a_range(tmp_path: Path) -> None:
    (front,) = load(tmp_path, front=image("encoding: 16UC1", "depth_range: [0.2, 2]")).observation.images
    assert (front.encoding, front.depth_range) == ("16UC1", (0.2, 2.0))


def test_the_instruction_may_come_by_topic(tmp_path: Path) -> None:
    text = "  text: {topic: task, type: std_msgs/msg/String}\n"
    assert load(tmp_path, more=text).observation.text == TextSource("task", "std_msgs/msg/String", "reliable")


@pytest.mark.parametrize(
    ("changes", "line", "says"),
    [
        ({"front": image("align: newest")}, 3, "images.front.align: 'newest' is not known; use one of: hold, asof"),
        ({"front": image("stamp: recieve")}, 3, "images.front.stamp: 'recieve'"),
        ({"front": image("encoding: bgr8")}, 3, "images.front.encoding: 'bgr8' is not known; use one of: rgb8, 16UC1"),
        ({"front": image("encoding: 16UC1")}, 3, "images.front: 'depth_range' is missing"),
        ({"front": image("encoding: 16UC1", "depth_range: [2, 1]")}, 3, "low 2 is not below high 1"),
        ({"front": image("encoding: 16UC1", "depth_range: [-1, 1]")}, 3, "depth_range: -1 is behind the camera"),
        ({"front": image("depth_range: [0, 1]")}, 3, "images.front.depth_range: is not a key"),
        ({"front": FRONT.replace("front:", "state:")}, 3, "'state' is what the measured state is called"),
        ({"state": arm("field: torque")}, 4, "state.field: 'torque' is not known; use one of: position, velocity"),
        ({"state": arm("fields: {x: position.x}")}, 4, "state.fields: is not a key"),
        ({"state": arm("convert: {c: {scale: 2}}")}, 4, "state.convert.c: 'c' is not in this source (a, b)"),
        ({"state": arm("convert: {a: {scale: 0}}")}, 4, "state.convert.a.scale: 0 makes every measurement the same"),
        ({"state": arm("convert: {a: {scael: 1}}")}, 4, "state.convert.a.scael: is not a key"),
        ({"state": "[]"}, 4, "expected a list with at least one item"),
        ({"state": listed(ARM, ARM)}, 6, "state[1]: 'a', 'b' is in a source before this one too"),
        (
            {"state": listed(ARM, "{topic: h, type: std_msgs/msg/Float64MultiArray, joints: [c]}")},
            6,
            "state[1]: 'max_age' is missing",
        ),
        (
            {"state": "{topic: h, type: std_msgs/msg/Float64MultiArray, joints: [a, b], max_age: 1, stamp: header}"},
            4,
            "state.stamp: std_msgs/msg/Float64MultiArray has no header; use receive",
        ),
        (
            {"state": listed(ARM, "{topic: p, type: geometry_msgs/msg/Pose, fields: {x: position.w}, max_age: 1}")},
            6,
            "state[1].fields.x: 'position.w' is not known; use one of: position.x",
        ),
        (
            {"state": listed(ARM, "{topic: p, type: geometry_msgs/msg/Pose, fields: {}, max_age: 1}")},
            6,
            "state[1].fields: no field is named",
        ),
        (
            {"state": listed(arm("field: velocity"), "{topic: p, type: sensor_msgs/msg/Imu}")},
            6,
            "state[1].type: 'sensor_msgs/msg/Imu' is not known",
        ),
        ({"state": arm("field: effort")}, 7, "action.joints: 'a', 'b' is commanded but not in observation.state"),
        ({"more": "  text: {topic: t, type: sensor_msgs/msg/Image}\n"}, 5, "observation.text.type: 'sensor_msgs"),
        ({"end": "controller_timeout: -0.1\n"}, 16, "controller_timeout: -0.1 is out of range; use at least 0"),
        (
            {"front": image("stamp: receive"), "end": "lockstep: {apply_after: 2}\n"},
            16,
            "lockstep: an observation is what is stamped with a tick's time, and front is taken by stamp receive",
        ),
        ({"state": arm("align: asof"), "end": "lockstep: {apply_after: 2}\n"}, 16, "arm/states is taken by"),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path: Path, changes: dict[str, str], line: int, says: str) -> None:
    with pytest.raises(FlashrtError) as refused:
        load(tmp_path, **changes)
    assert refused.value.code is ErrorCode.BAD_CONTRACT
    assert f"contract.yaml:{line}: " in str(refused.value)
    assert says in str(refused.value)
