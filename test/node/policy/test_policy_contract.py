# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A robot whose contract is not the demo's: a compressed camera, a hand of its own, degrees, a task by topic."""

from __future__ import annotations

import io
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rclpy.node import Node
from sensor_msgs.msg import CompressedImage
from std_msgs.msg import Float64MultiArray, String

from flashrt_ros.node import qos
from flashrt_ros.node.interfaces import msg
from flashrt_ros.node.stamps import from_nanoseconds
from flashrt_ros.policy.replay_record import array_sha256

STATE = """\
  state:
    - topic: joint_states
      type: sensor_msgs/msg/JointState
      joints: [wrist_roll, elbow, shoulder_pan, shoulder_lift, wrist_pitch]
      max_age: 0.3
      align: asof
      convert: {shoulder_pan: {scale: -57.29577951308232, offset: 5.0}}
    - {topic: hand, type: std_msgs/msg/Float64MultiArray, joints: [gripper], max_age: 0.3}
  text: {topic: task, type: std_msgs/msg/String}
"""


class Extra:
    """What this robot has besides the arm's joints and its camera at the wrist."""

    def __init__(self, node: Node) -> None:
        self._front = node.create_publisher(CompressedImage, "front/compressed", 10)
        self._hand = node.create_publisher(Float64MultiArray, "hand", 10)
        self.task = node.create_publisher(String, "task", 10)
        stream = io.BytesIO()
        pixels = np.random.default_rng(0).integers(0, 256, (96, 96, 3), np.uint8)
        Image.fromarray(pixels).save(stream, "JPEG")
        self._whole = array("B", stream.getvalue())

    def show(self, stamp: int, broken: bool) -> None:
        image = CompressedImage(format="bgr8; jpeg compressed bgr8")
        image.data = self._whole[: len(self._whole) // 2] if broken else self._whole
        image.header.stamp = from_nanoseconds(stamp)
        self._front.publish(image)
        self._hand.publish(Float64MultiArray(data=[0.2]))


@pytest.fixture
def contract_of_it(timed_contract: Path, tmp_path: Path) -> Path:
    text = timed_contract.read_text().replace("camera/front/image_raw", "front/compressed")
    text = text.replace("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage", 1)
    start, end = text.index("  state:"), text.index("action:")
    path = tmp_path / "contract.yaml"
    path.write_text(text[:start] + STATE + text[end:])
    return path


def test_its_observations_come_in_and_its_commands_go_out_in_its_own_units(
    spun: Node,
    arm: Any,
    client: Any,
    start_policy: Callable[..., Any],
    wait_for: Callable[..., Any],
    contract_of_it: Path,
) -> None:
    extra = Extra(spun)
    records: list[Any] = []
    spun.create_subscription(msg.BoundaryRecord, "policy/boundary", records.append, qos.RECORD)
    start_policy(autostart=True, contract=contract_of_it, observation_timeout=10.0)
    wait_for(lambda: client.state() == "active", 40.0)
    wait_for(lambda: extra.task.get_subscription_count())
    extra.task.publish(String(data="lift the cup"))
    arm.auto, arm.stamp, arm.absent = False, time.time_ns(), {"front"}
    client.run()
    wait_for(lambda: arm.running)

    def show_now(broken: bool) -> int:
        arm.stamp = time.time_ns()
        extra.show(arm.stamp, broken)
        arm.tick(infer=True)
        time.sleep(0.03)
        return len(arm.chunks)

    for _ in range(20):
        assert show_now(broken=True) == 0
    wait_for(lambda: show_now(broken=False), what="a chunk of whole images")
    chunk = arm.chunks[0]
    assert chunk.instruction == "lift the cup"
    rows = np.array(chunk.data).reshape(chunk.horizon, -1)
    measured = arm.positions | {"gripper": 0.2}
    for column, joint in enumerate(chunk.joint_names):
        assert np.abs(rows[:, column] - measured[joint]).max() < 0.2, joint
    drawn = wait_for(lambda: [record for record in records if record.verb == "act"], what="the log")
    assert drawn[0].output_sha256 == array_sha256(rows)
    observed = next(record for record in records if record.verb == "observe")
    assert list(observed.input_keys) == ["front", "wrist", "state[0]", "state[1]"]

    def reported() -> dict[str, str]:
        """What is said of the joints, once an observation was taken of them."""
        status = client.diagnostics.get("input state[0]")
        values = {value.key: value.value for value in status.values} if status is not None else {}
        return values if values.get("observed age, s", "none") != "none" else {}

    values = wait_for(reported, what="the age of what was observed")
    assert float(values["observed age, s"]) < 0.3
    assert float(values["observed skew, s"]) < 0.2
