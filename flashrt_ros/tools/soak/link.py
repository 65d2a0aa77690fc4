# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Between the simulated robot and the nodes: passes on what the robot measures and shows, or spoils it."""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Callable
from functools import partial

from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.serialization import deserialize_message, serialize_message
from rosgraph_msgs.msg import Clock as ClockMessage
from sensor_msgs.msg import Image, JointState

from flashrt_ros.node import qos
from flashrt_ros.node.stamps import from_nanoseconds

VIEWS = ("front", "wrist")
TOPICS: dict[str, tuple[type, str]] = {
    "state": (JointState, "joint_states"),
    **{view: (Image, f"camera/{view}/image_raw") for view in VIEWS},
}
"""What the nodes observe, by the key under which it is spoilt: message class and topic."""

PREFIX = "robot_side/"
"""Of the topics on which the robot publishes."""

_CLOCK_PERIOD = 0.02  # s


class Link:
    """Owns ROS time, stamps everything with it, and spoils what it is told to.

    Attributes:
        stopped: inputs that are withheld.
        frozen: inputs whose stamp no longer changes.
        broken: inputs whose numbers are NaN.
    """

    def __init__(self, node: Node) -> None:
        self.stopped: set[str] = set()
        self.frozen: set[str] = set()
        self.broken: set[str] = set()
        self._ahead = time.time_ns() - time.monotonic_ns()
        self._stamps: dict[str, int] = {}
        self._clock = node.create_publisher(ClockMessage, "/clock", qos.CLOCK)
        node.create_timer(_CLOCK_PERIOD, self._show_time, clock=Clock(clock_type=ClockType.STEADY_TIME))
        profile = qos.input_qos("reliable")
        for key, (kind, topic) in TOPICS.items():
            publisher = node.create_publisher(kind, topic, profile)
            node.create_subscription(
                kind, PREFIX + topic, partial(self._pass, key, publisher.publish), profile, raw=True
            )

    @property
    def now(self) -> int:
        """ROS time, ns."""
        return time.monotonic_ns() + self._ahead

    def jump(self, seconds: float) -> None:
        """Set ROS time forward, or back."""
        self._ahead += round(seconds * 1e9)
        self._show_time()

    def _show_time(self) -> None:
        self._clock.publish(ClockMessage(clock=from_nanoseconds(self.now)))

    def _pass(self, key: str, publish: Callable[[bytes], None], raw: bytes) -> None:
        if key in self.stopped:
            return
        if key not in self.frozen:
            self._stamps[key] = self.now
        if key in self.broken:
            state = deserialize_message(raw, JointState)
            state.position = array("d", [float("nan")] * len(state.position))
            raw = serialize_message(state)
        message = bytearray(raw)
        struct.pack_into("<iI", message, 4, *divmod(self._stamps[key], 1_000_000_000))  # the header comes first
        publish(bytes(message))
