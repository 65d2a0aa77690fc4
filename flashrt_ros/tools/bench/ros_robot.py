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
from array import array
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.node import Node
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import Empty

from flashrt_ros.node.parameters import Parameter, declare
from flashrt_ros.node.qos import COMMAND, DIAGNOSTICS, input_qos
from flashrt_ros.node.run import run_node
from flashrt_ros.policy.contract import load_contract
from flashrt_ros.policy.contract_observation import ImageSource

_PARAMETERS = (
    Parameter("contract", "", "Path of the contract file whose topics are published."),
    Parameter("camera_rate", 30.0, "Images a second of each camera.", low=1.0, high=200.0),
    Parameter("image_width", 96, "Pixels.", low=16, high=1920),
    Parameter("image_height", 96, "Pixels.", low=16, high=1200),
)
_FRAMES = 8
END_OF_FRAMES = "bench/end_of_frames"
"""The topic that ends them, so that what was published and what was delivered can be compared."""

FRAMES = "robot: frames"
"""The status that has how many were published, by the contract's key; it comes once there are no more."""


class BenchRobot(Node):
    """Node `robot`: joint states at the contract's rate, and every camera of the contract that somebody sees."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__("robot")
        declare(self, _PARAMETERS)
        contract = load_contract(self.get_parameter("contract").value)
        (joints,) = contract.observation.state
        self._state = JointState(name=list(joints.joints), position=[0.0] * len(joints.joints))
        self._states = self.create_publisher(JointState, joints.topic, input_qos("reliable"))
        self.create_subscription(JointState, contract.action.commands[0].topic, self._on_command, COMMAND)
        self._frames: Counter[str] = Counter()
        self._over = False
        self.create_subscription(Empty, END_OF_FRAMES, self._on_end, COMMAND)
        self._reports = self.create_publisher(DiagnosticArray, "/diagnostics", DIAGNOSTICS)
        self.create_timer(1.0, self._report)
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
        width, height = (self.get_parameter(name).value for name in ("image_width", "image_height"))
        frames = itertools.cycle(list(_noise(camera.key, width, height)))

        def show() -> None:
            if self._over or not publisher.get_subscription_count():
                return
            image = next(frames)
            image.header.stamp = self.get_clock().now().to_msg()
            publisher.publish(image)
            self._frames[camera.key] += 1

        return show

    def _on_end(self, message: Empty) -> None:
        self._over = True

    def _report(self) -> None:
        if not self._over:
            return
        values = [KeyValue(key=key, value=str(count)) for key, count in self._frames.items()]
        report = DiagnosticArray(status=[DiagnosticStatus(name=FRAMES, values=values)])
        report.header.stamp = self.get_clock().now().to_msg()
        self._reports.publish(report)


def _noise(key: str, width: int, height: int) -> Iterator[Image]:
    generator = np.random.default_rng(list(key.encode()))
    for _ in range(_FRAMES):
        pixels = generator.integers(0, 256, (height, width, 3), np.uint8)
        data = array("B", pixels.tobytes())
        yield Image(height=height, width=width, step=3 * width, encoding="rgb8", data=data)


if __name__ == "__main__":
    sys.exit(run_node(BenchRobot))
