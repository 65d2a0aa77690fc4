# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Who else publishes on a topic that is meant to have one publisher."""

from __future__ import annotations

from typing import Any

from rclpy.node import Node


class RivalPublishers:
    """Looks at the graph when it is asked to. A process that was killed counts until the middleware lets go of it."""

    def __init__(self, node: Node, publisher: Any) -> None:
        """`publisher` is the node's own."""
        self._node = node
        self._topic = publisher.topic_name
        self._own = (node.get_name(), node.get_namespace())

    def names(self) -> str:
        """Return the other nodes that publish on the topic; empty: none does."""
        if self._node.count_publishers(self._topic) <= 1:
            return ""
        found = self._node.get_publishers_info_by_topic(self._topic)
        nodes = [(info.node_name, info.node_namespace) for info in found]
        if self._own in nodes:
            nodes.remove(self._own)
        return ", ".join(sorted({f"'{namespace.rstrip('/')}/{name}'" for name, namespace in nodes}))
