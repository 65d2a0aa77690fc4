# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import rclpy
from rclpy.node import Node
from std_msgs.msg import Bool

from flashrt_ros.node.rival_publishers import UNKNOWN_NODE, RivalPublishers


@pytest.fixture
def make(context: None) -> Iterator[Callable[..., Node]]:
    """Make a node with a publisher on a topic."""
    nodes: list[Node] = []

    def publisher(name: str, namespace: str = "", topic: str = "/joint_command") -> Any:
        nodes.append(rclpy.create_node(name, namespace=namespace))
        return nodes[-1], nodes[-1].create_publisher(Bool, topic, 1)

    yield publisher
    for node in nodes:
        node.destroy_node()


def test_other_nodes_are_named_and_one_of_the_same_name_is_another(make: Any, wait_until: Any) -> None:
    own, publisher = make("command")
    rivals = RivalPublishers(own, publisher)
    assert rivals.names() == ""
    make("unrelated", topic="/other")
    make("teleop", "/left")
    wait_until(lambda: rivals.names() == "'/left/teleop'")
    twin, its = make("command")
    wait_until(lambda: rivals.names() == "'/command', '/left/teleop'")
    twin.destroy_publisher(its)
    wait_until(lambda: rivals.names() == "'/left/teleop'")


def test_a_node_whose_name_comes_behind_its_publisher_and_goes_before_it_is_named_all_the_same() -> None:
    own, rival = (
        SimpleNamespace(node_name=name, node_namespace="/", endpoint_gid=[number])
        for number, name in enumerate(("command", UNKNOWN_NODE))
    )
    graph: Any = SimpleNamespace(get_name=lambda: "command", get_namespace=lambda: "/")
    graph.count_publishers = lambda topic: 2
    graph.get_publishers_info_by_topic = lambda topic: [own, rival]
    rivals = RivalPublishers(graph, SimpleNamespace(topic_name="/joint_command"))
    assert rivals.names() == "a node whose name has not come yet"
    for name in ("teleop", UNKNOWN_NODE):
        rival.node_name = name
        assert rivals.names() == "'/teleop'"
