# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""`run_tree`: runs the behaviour tree of a YAML file once, against nodes that run already."""

from __future__ import annotations

import sys
import threading
import time

import py_trees
from rclpy.node import Node

from flashrt_ros.node.behaviour_tree import load_tree
from flashrt_ros.node.parameters import Parameter, declare
from flashrt_ros.node.run import run_node
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

PARAMETERS = (
    Parameter("tree", "", "Path of the tree's YAML file."),
    Parameter("tick_rate", 10.0, "Ticks of the tree a second.", low=0.1, high=1000.0),
)
_FLUSH = 0.3  # s for a cancellation to leave


class TreeNode(Node):
    """Ticks the tree until it succeeds or fails, and asks the process to end then."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__("tree")
        declare(self, PARAMETERS)
        path = self.get_parameter("tree").value
        if not path:
            raise FlashrtError(ErrorCode.BAD_REQUEST, "the parameter 'tree' is empty; set it to a YAML file")
        self._stop = stop
        self._said = ""
        self.failed = False
        self.tree = py_trees.trees.BehaviourTree(load_tree(path))
        self.tree.setup(node=self)
        self._timer = self.create_timer(1.0 / self.get_parameter("tick_rate").value, self._tick)

    def _tick(self) -> None:
        self.tree.tick()
        tip = self.tree.root.tip()
        said = f"{tip.name}: {tip.feedback_message}" if tip is not None else ""
        if said != self._said:
            self._said = said
            self.get_logger().info(said)
        if self.tree.root.status != py_trees.common.Status.RUNNING:
            self.failed = self.tree.root.status == py_trees.common.Status.FAILURE
            self.get_logger().info(f"the tree ended: {self.tree.root.status.value}")
            self._stop.set()

    def finish(self) -> bool:
        """Cancel a goal that still runs."""
        running = self.tree.root.status == py_trees.common.Status.RUNNING
        self._timer.cancel()
        self.tree.root.stop(py_trees.common.Status.INVALID)
        until = time.monotonic() + _FLUSH
        while running and self.executor is not None and time.monotonic() < until:
            self.executor.spin_once(_FLUSH / 10)
        return True


def main() -> int:
    """Run the tree once; the exit code is 1 if it failed, and 0 if it succeeded or a signal ended it."""
    made: list[TreeNode] = []

    def make(stop: threading.Event) -> TreeNode:
        made.append(TreeNode(stop))
        return made[0]

    return run_node(make) or int(any(node.failed for node in made))


if __name__ == "__main__":
    sys.exit(main())
