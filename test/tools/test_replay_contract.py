# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A bag of a robot with compressed images, several topics of state, units of its own and a camera without stamps."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from flashrt_ros.policy.action_map import ActionMap
from flashrt_ros.policy.contract import load_contract
from flashrt_ros.policy.replay_record import array_sha256
from flashrt_ros.tools.replay_job import Job, run_job

FRONT, WRIST, JOINTS = "/camera/front/image_raw", "/camera/wrist/image_raw", "/joint_states"
STATE = """\
  state:
    - topic: arm/joint_states
      type: sensor_msgs/msg/JointState
      joints: [elbow, shoulder_lift, shoulder_pan, wrist_pitch]
      max_age: 0.3
      align: asof
      convert: {shoulder_lift: {scale: 2.0}, elbow: {scale: -0.5}}
    - {topic: hand, type: std_msgs/msg/Float64MultiArray, joints: [gripper, wrist_roll], max_age: 0.3}
"""
NODE_IS_EARLIER = 300
"""Nanoseconds between a message's receipt by policy_node and by the recorder."""


@pytest.fixture(scope="module")
def wide_contract(contract: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = contract.read_text().replace("wrist: {", "wrist: {stamp: receive, ")
    front = text.index("type: sensor_msgs/msg/Image")
    text = text[:front] + text[front:].replace("msg/Image", "msg/CompressedImage", 1)
    start, end = text.index("  state:"), text.index("action:")
    path = tmp_path_factory.mktemp("wide") / "contract.yaml"
    path.write_text(text[:start] + STATE + text[end:].partition("lockstep:")[0])
    return path


@pytest.fixture(scope="module")
def wide_messages(tape: Any, wide_contract: Path, make_message: Callable[..., Any]) -> list[Any]:
    """The tape as that robot's nodes would have published it."""
    return list(widened(tape, ActionMap(load_contract(wide_contract).action, tape.joints), make_message))


def widened(tape: Any, actions: ActionMap, make: Callable[..., Any]) -> Iterator[Any]:
    position = dict.fromkeys(tape.joints, 0.0)
    digest: dict[str, str] = {}
    received = 0
    drawn = iter(tape.drawn)
    rows: Any = None
    for topic, time, message in tape.messages:
        if topic == FRONT:
            stream = io.BytesIO()
            pixels = message.data.reshape(message.height, message.width, 3)
            Image.fromarray(pixels).save(stream, "PNG")
            packed = np.frombuffer(stream.getvalue(), np.uint8)
            kind = "sensor_msgs/msg/CompressedImage"
            yield topic, time, make(kind, header=message.header, format="rgb8; png compressed bgr8", data=packed)
        elif topic == WRIST:
            received = time - NODE_IS_EARLIER
            plain = {name: getattr(message, name) for name in ("height", "width", "encoding", "step", "data")}
            yield topic, time, make("sensor_msgs/msg/Image", **plain)
        elif topic == JOINTS:
            position = dict(zip(message.name, message.position, strict=True))
            arm = {name: position[name] for name in ("wrist_pitch", "shoulder_pan", "shoulder_lift", "elbow")}
            arm["shoulder_lift"] /= 2.0
            arm["elbow"] /= -0.5
            names, none = ["spare", *arm], np.zeros(0)
            values = np.array([9.0, *arm.values()])
            joints = make("sensor_msgs/msg/JointState", name=names, position=values, velocity=none, effort=none)
            joints.header = message.header
            yield "/arm/joint_states", time, joints
            hand = np.array([position["gripper"], position["wrist_roll"]])
            yield "/hand", time + 1, make("std_msgs/msg/Float64MultiArray", data=hand)
            ours = ("shoulder_pan", "shoulder_lift", "elbow", "wrist_pitch")
            digest = {
                "state[0]": array_sha256(np.array([position[name] for name in ours])),
                "state[1]": array_sha256(np.array([position["wrist_roll"], position["gripper"]])),
            }
        elif topic == "/policy/boundary":
            changed: dict[str, Any] = {}
            if message.input_keys:
                stamps = dict(zip(message.input_keys, message.input_stamps, strict=True))
                hashes = dict(zip(message.input_keys, message.input_sha256, strict=True))
                seconds, rest = divmod(received, 1_000_000_000)
                stamps["wrist"] = make("builtin_interfaces/msg/Time", sec=seconds, nanosec=rest)
                stamps |= {"state[0]": stamps.pop("state"), "state[1]": stamps["wrist"]}
                hashes = {key: hashes[key] for key in ("front", "wrist")} | digest
                changed = {
                    "input_keys": list(hashes),
                    "input_stamps": [stamps[key] for key in hashes],
                    "input_sha256": list(hashes.values()),
                }
            if message.verb == "act":
                rows = actions.rows(next(drawn))
                changed["output_sha256"] = array_sha256(rows)
            yield topic, time, replace(message, **changed)
        else:
            yield topic, time, replace(message, data=rows.reshape(-1))


def test_every_chunk_is_equal(
    wide_messages: list[Any], wide_contract: Path, checkpoint: Path, write_bag: Callable[..., Path], tmp_path: Path
) -> None:
    bag = write_bag(tmp_path / "bag", wide_messages)
    result = run_job(Job(str(bag), (str(checkpoint),), contract=str(wide_contract)))
    assert (result.error, result.troubles, result.verdict) == ("", [], "equal")
    assert len(result.pictures) == 2
