# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Behaviours that ask whether what the policy did has come about: something that only the robot or a camera knows."""

from __future__ import annotations

import time
from typing import Any

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from rclpy.node import Node
from std_msgs.msg import Bool
from std_srvs.srv import Trigger

from flashrt_ros.node.behaviour_arguments import check_ros_name, check_time_limit, named
from flashrt_ros.node.behaviour_service import ServiceBehaviour, required_node


class WaitForTrue(Behaviour):
    """Succeeds when a std_msgs/Bool topic says true after the round began; fails when its time is over.

    What the topic said before is not taken: it may be of the attempt before this one.
    """

    def __init__(self, topic: str, *, name: str = "wait_for_true", time_limit: float = 2.0) -> None:
        """`topic` is relative to the node's namespace; `time_limit` in s."""
        super().__init__(name)
        with named(name):
            check_ros_name("topic", topic)
            check_time_limit(time_limit)
        self.topic, self.time_limit = topic, time_limit
        self._node: Node | None = None
        self._subscription: Any = None
        self._heard: bool | None = None
        self._begun = 0.0

    def setup(self, **kwargs: Any) -> None:
        """Subscribe; the argument `node` is an rclpy node."""
        self._node = required_node(self, kwargs)
        self._subscription = self._node.create_subscription(Bool, self.topic, self._on_message, 10)

    def initialise(self) -> None:
        """Begin a round."""
        self._heard, self._begun = None, time.monotonic()

    def update(self) -> Status:
        """Look at what has come."""
        if self._subscription is None:
            raise RuntimeError(f"behaviour {self.name!r} was ticked before setup(node=...)")
        if self._heard:
            self.feedback_message = f"{self.topic} is true"
            return Status.SUCCESS
        said = "says nothing" if self._heard is None else "is false"
        if time.monotonic() - self._begun > self.time_limit:
            self.feedback_message = f"{self.topic} {said} after {self.time_limit:g} s"
            return Status.FAILURE
        self.feedback_message = f"waiting: {self.topic} {said}"
        return Status.RUNNING

    def shutdown(self) -> None:
        """Destroy the subscription."""
        if self._node is not None and self._subscription is not None:
            self._node.destroy_subscription(self._subscription)
        self._node = self._subscription = None

    def _on_message(self, message: Bool) -> None:
        self._heard = message.data


class CallTrigger(ServiceBehaviour):
    """Calls a std_srvs/Trigger service: a check, a homing, a gripper. Judged by `success`."""

    def __init__(self, service: str, *, name: str = "call_trigger", time_limit: float = 10.0, key: str = "") -> None:
        super().__init__(name, service, Trigger, time_limit=time_limit, key=key)

    def make_request(self) -> Any:
        """Return the request."""
        return Trigger.Request()

    def judge(self, response: Any) -> str:
        """Judge by success."""
        return "" if response.success else response.message or f"{self.service} answered no"
