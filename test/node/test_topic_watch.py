# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from rclpy.duration import Duration
from rclpy.qos import LivelinessPolicy, QoSProfile, ReliabilityPolicy
from std_msgs.msg import Bool

from flashrt_ros.node.rival_publishers import UNKNOWN_NODE
from flashrt_ros.node.topic_watch import TopicWatch

BEST_EFFORT = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT, liveliness=LivelinessPolicy.AUTOMATIC)


class Graph:
    """A node that sees the publishers that a test puts there."""

    def __init__(self) -> None:
        self.publishers: list[Any] = []
        self.warnings: list[str] = []
        self.watch = TopicWatch(self)  # type: ignore[arg-type]

    def resolve_topic_name(self, topic: str) -> str:
        return f"/ns/{topic}"

    def get_publishers_info_by_topic(self, name: str) -> list[Any]:
        return self.publishers

    def get_logger(self) -> Any:
        return SimpleNamespace(warning=self.warnings.append)

    def add(self, profile: QoSProfile, kind: str = "std_msgs/msg/Bool") -> None:
        self.publishers.append(
            SimpleNamespace(node_name="camera", node_namespace="/left", topic_type=kind, qos_profile=profile)
        )

    def look(self, profile: QoSProfile = BEST_EFFORT) -> str:
        return self.watch.trouble("image", Bool, profile)


@pytest.fixture
def graph() -> Graph:
    return Graph()


def test_a_publisher_that_fits_is_no_trouble(graph: Graph) -> None:
    graph.add(BEST_EFFORT)
    assert graph.look() == ""
    assert graph.warnings == []


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE), "reliab"),
        (QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT, deadline=Duration(seconds=1)), "deadline"),
        (
            QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT, liveliness=LivelinessPolicy.MANUAL_BY_TOPIC),
            "liveliness",
        ),
    ],
    ids=["reliability", "deadline", "liveliness"],
)
def test_a_quality_that_is_asked_for_and_not_offered_is_named_once(graph: Graph, asked: QoSProfile, said: str) -> None:
    graph.add(BEST_EFFORT)
    for _ in range(3):
        trouble = graph.look(asked)
        assert "/left/camera does not fit" in trouble
        assert said in trouble.lower()
    assert graph.warnings == [f"topic /ns/image: {trouble}"]


def test_another_type_is_named(graph: Graph) -> None:
    graph.add(BEST_EFFORT, "std_msgs/msg/String")
    assert graph.look() == "/left/camera publishes std_msgs/msg/String, expected is std_msgs/msg/Bool"


def test_one_that_has_not_come_is_not_warned_of_and_one_that_went_is_and_is_counted(graph: Graph) -> None:
    assert graph.look() == "no publisher"
    assert graph.warnings == []
    for gone in (1, 2):
        graph.add(BEST_EFFORT)
        assert graph.look() == ""
        graph.publishers.clear()
        assert graph.look() == graph.look() == "no publisher any more; /left/camera was one"
        assert graph.watch.lost == {"/ns/image": gone}
        assert len(graph.warnings) == gone


def test_one_whose_name_goes_before_it_is_named_when_it_has_gone(graph: Graph) -> None:
    graph.add(BEST_EFFORT)
    assert graph.look() == ""
    graph.publishers[0].node_name = UNKNOWN_NODE
    assert graph.look() == ""
    graph.publishers.clear()
    assert graph.look() == "no publisher any more; /left/camera was one"
