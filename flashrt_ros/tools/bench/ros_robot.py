# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A robot that costs next to nothing: it is where its last command says, and its cameras show noise.

A simulation would take more of the processor than the nodes that are measured; on a robot neither physics nor
rendering runs beside them.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
from rclpy.node import Node
from sensor_msgs.msg import Image, JointState

from flashrt_ros.node.parameters import Parameter, declare
from flashrt_ros.node.qos import COMMAND, input_qos
from flashrt_ros.node.run import run_node
from flashrt_ros.policy.contract import load_contract
from flashrt_ros.policy.contract_observation import ImageSource

_PARAMETERS = (
    Parameter("contract", "", "Path of the contract file whose topics are published."),
    Parameter("camera_rate", 30.0, "Images a second of each camera.", low=1.0, high=200.0),
    Parameter("image_size", 96, "Pixels of each side.", low=16, high=1024),
)
_FRAMES = 8


class BenchRobot(Node):
    """Node `robot`: joint states at the contract's rate, and every camera of the contract."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__("robot")
        declare(self, _PARAMETERS)
        contract = load_contract(self.get_parameter("contract").value)
        (joints,) = contract.observation.state
        self._state = JointState(name=list(joints.joints), position=[0.0] * len(joints.joints))
        self._states = self.create_publisher(JointState, joints.topic, input_qos("reliable"))
        self.create_subscription(JointState, contract.action.command.topic, self._on_command, COMMAND)
        self.create_timer(1.0 / contract.action.rate, self._show_joints)
        for camera in contract.observation.images:
            self.create_timer(1.0 / self.get_parameter("camera_rate").value, self._camera(camera))

    def _on_command(self, command: JointState) -> None:
        self._state.position = [dict(zip(command.name, command.position, strict=True))[n] for n in self._state.name]

    def _show_joints(self) -> None:
        self._state.header.stamp = self.get_clock().now().to_msg()
        self._states.publish(self._state)

    def _camera(self, camera: ImageSource) -> Callable[[], None]:
        publisher = self.create_publisher(Image, camera.topic, input_qos("reliable"))
        frames = itertools.cycle(list(_noise(camera.key, self.get_parameter("image_size").value)))

        def show() -> None:
            image = next(frames)
            image.header.stamp = self.get_clock().now().to_msg()
            publisher.publish(image)

        return show


def _noise(key: str, size: int) -> Iterator[Image]:
    generator = np.random.default_rng(list(key.encode()))
    for _ in range(_FRAMES):
        pixels = generator.integers(0, 256, (size, size, 3), np.uint8)
        yield Image(height=size, width=size, step=3 * size, encoding="rgb8", data=pixels.tobytes())


if __name__ == "__main__":
    sys.exit(run_node(BenchRobot))
