# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Who publishes what a node hears, and why nothing would come of it.

The middleware's events (topic_events.py) tell that something happened; the graph tells who it is and whether it still
is so. A subscription that asks for a deadline is not served at all by a publisher that promises none, as no camera
driver does, so the deadline of an input is the contract's max_age.
"""

from __future__ import annotations

from rclpy.node import Node
from rclpy.qos import QoSCompatibility, QoSProfile, qos_check_compatible

from flashrt_ros.node.recorder_topics import type_name
from flashrt_ros.node.rival_publishers import UNKNOWN_NODE


class TopicWatch:
    """Remembers who was there, to tell who has gone; logs what changes."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._known: dict[str, str] = {}
        self._said: dict[str, str] = {}
        self.lost: dict[str, int] = {}
        """How often a topic has lost its last publisher, by its name."""

    def trouble(self, topic: str, kind: type, profile: QoSProfile) -> str:
        """Return why messages cannot come on a topic, as it is given to ROS; empty: they can."""
        name = self._node.resolve_topic_name(topic)
        publishers = self._node.get_publishers_info_by_topic(name)
        trouble = self._absence(name) if not publishers else ""
        for publisher in publishers:
            sender = f"{publisher.node_namespace.rstrip('/')}/{publisher.node_name}"
            if publisher.node_name != UNKNOWN_NODE or name not in self._known:
                self._known[name] = sender
            if publisher.topic_type != type_name(kind):
                trouble = f"{sender} publishes {publisher.topic_type}, expected is {type_name(kind)}"
                continue
            compatibility, reason = qos_check_compatible(publisher.qos_profile, profile)
            if compatibility == QoSCompatibility.ERROR:
                trouble = f"the quality of service of {sender} does not fit: {reason.strip()}"
        self._log(name, trouble)
        return trouble

    def publishers(self, topic: str) -> int:
        """How many there are of a topic."""
        return int(self._node.count_publishers(topic))

    def _absence(self, name: str) -> str:
        gone = self._known.get(name)
        return f"no publisher any more; {gone} was one" if gone else "no publisher"

    def _log(self, name: str, trouble: str) -> None:
        before = self._said.get(name, "")
        if trouble == before:
            return
        self._said[name] = trouble
        if trouble.startswith("no publisher any more"):
            self.lost[name] = self.lost.get(name, 0) + 1
        if trouble and trouble != "no publisher":
            self._node.get_logger().warning(f"topic {name}: {trouble}")
