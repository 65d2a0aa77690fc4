# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import rclpy
from rclpy.node import Node

from flashrt_ros.node.executor import LeanExecutor
from flashrt_ros.node.executor_bridge import ExecutorBridge


@pytest.fixture
def bridged(context: None) -> Iterator[Node]:
    node = rclpy.create_node("bridged")
    yield node
    node.destroy_node()


def test_what_is_left_waits_for_what_is_posted_and_keeps_its_place(bridged: Node, wait_until: Any) -> None:
    executor, bridge, made = LeanExecutor(), ExecutorBridge(bridged), []
    executor.add_node(bridged)

    def spun() -> list[int]:
        executor.spin_once(0.01)
        return made

    for number in range(2):
        bridge.leave(lambda number=number: made.append(number))  # type: ignore[misc]
    executor.spin_once(0.01)
    executor.spin_once(0.01)
    assert made == []
    bridge.post(lambda: made.append(2))
    assert wait_until(spun) == [0, 1, 2]
    bridge.leave(lambda: made.append(3))
    bridge.run()
    assert made == [0, 1, 2, 3]
    executor.shutdown()
