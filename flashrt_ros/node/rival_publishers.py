# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Who else publishes on a topic that is meant to have one publisher."""

from __future__ import annotations

from typing import Any

from rclpy.node import Node

UNKNOWN_NODE = "_NODE_NAME_UNKNOWN_"
"""What the middleware calls a node whose publisher it knows of, but not yet, or no longer, its name."""
_UNNAMED = "a node whose name has not come yet"


class RivalPublishers:
    """Looks at the graph when it is asked to. A process that was killed counts until the middleware lets go of it."""

    def __init__(self, node: Node, publisher: Any) -> None:
        """`publisher` is the node's own."""
        self._node = node
        self._topic = publisher.topic_name
        self._own = _quoted(node.get_namespace(), node.get_name())
        self._names: dict[tuple[int, ...], str] = {}
        """Of the nodes that were seen the last time, by their publishers' ids."""

    def names(self) -> str:
        """Return the other nodes that publish on the topic; empty: none does."""
        if self._node.count_publishers(self._topic) <= 1:
            return ""
        found = self._node.get_publishers_info_by_topic(self._topic)
        self._names = {tuple(info.endpoint_gid): self._name(info) for info in found}
        nodes = list(self._names.values())
        if self._own in nodes:
            nodes.remove(self._own)
        return ", ".join(sorted(set(nodes)))

    def _name(self, info: Any) -> str:
        if info.node_name == UNKNOWN_NODE:
            return self._names.get(tuple(info.endpoint_gid), _UNNAMED)
        return _quoted(info.node_namespace, info.node_name)


def _quoted(namespace: str, name: str) -> str:
    return f"'{namespace.rstrip('/')}/{name}'"
