# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A node of the test's own, spun by a thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node


@contextlib.contextmanager
def spinning(name: str) -> Iterator[Node]:
    """Make a node of this name, serve it until the block ends, and destroy it."""
    node = Node(name)
    executor = SingleThreadedExecutor()
    executor.add_node(node)

    def spin() -> None:
        with contextlib.suppress(ExternalShutdownException):
            executor.spin()

    thread = threading.Thread(target=spin, daemon=True)
    thread.start()
    try:
        yield node
    finally:
        executor.shutdown()
        thread.join(5.0)
        node.destroy_node()
