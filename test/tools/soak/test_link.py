# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What stands between the robot and the nodes: unspoilt, and spoilt."""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rclpy")

from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import Image, JointState

from flashrt_ros.node.stamps import from_nanoseconds, to_nanoseconds
from flashrt_ros.tools.soak.link import PREFIX, TOPICS, Link


class Node:
    """Publishers that keep, and subscriptions to be called."""

    def __init__(self) -> None:
        self.sent: dict[str, list[Any]] = {}
        self.callbacks: dict[str, Callable[[bytes], None]] = {}

    def create_publisher(self, kind: type, topic: str, profile: object) -> Any:
        return SimpleNamespace(publish=self.sent.setdefault(topic, []).append)

    def create_subscription(self, kind: type, topic: str, call: Callable[[bytes], None], *_: Any, **__: Any) -> None:
        self.callbacks[topic] = call

    def create_timer(self, *_: Any, **__: Any) -> None:
        pass

    def show(self, key: str) -> Any:
        """Let the robot publish. Returns what the nodes get; None: nothing."""
        kind, topic = TOPICS[key]
        if kind is JointState:
            message = JointState(name=["elbow"], position=[0.5], velocity=[0.1])
        else:
            message = Image(height=1, width=1, step=3, encoding="rgb8", data=array("B", [1, 2, 3]))
        message.header.stamp = from_nanoseconds(5)
        sent = self.sent[topic]
        count = len(sent)
        self.callbacks[PREFIX + topic](serialize_message(message))
        return deserialize_message(sent[-1], kind) if len(sent) > count else None


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def link(node: Node) -> Link:
    return Link(node)  # type: ignore[arg-type]


def test_what_passes_is_stamped_with_the_time_that_it_owns(node: Node, link: Link) -> None:
    before = link.now
    state, image = node.show("state"), node.show("front")
    for message in (state, image):
        assert before <= to_nanoseconds(message.header.stamp) <= link.now
    assert list(state.position) == [0.5]
    assert bytes(image.data) == b"\x01\x02\x03"


def test_a_jump_moves_time_and_the_stamps(node: Node, link: Link) -> None:
    began = time.monotonic_ns()
    first = to_nanoseconds(node.show("state").header.stamp)
    link.jump(-5.0)
    clock, second = node.sent["/clock"][-1].clock, to_nanoseconds(node.show("state").header.stamp)
    passed = time.monotonic_ns() - began
    assert 0 <= to_nanoseconds(clock) - (first - 5_000_000_000) <= second - (first - 5_000_000_000) <= passed


def test_what_is_stopped_is_withheld_and_nothing_else(node: Node, link: Link) -> None:
    link.stopped.add("front")
    assert node.show("front") is None
    assert node.show("wrist") is not None


def test_a_frozen_stamp_stays_that_of_the_last_message(node: Node, link: Link) -> None:
    last = node.show("front").header.stamp
    link.frozen.add("front")
    assert node.show("front").header.stamp == last
    link.frozen.clear()
    assert to_nanoseconds(node.show("front").header.stamp) > to_nanoseconds(last)


def test_broken_joints_are_nan(node: Node, link: Link) -> None:
    link.broken.add("state")
    state = node.show("state")
    assert all(math.isnan(value) for value in state.position)
    assert to_nanoseconds(state.header.stamp) > 5
