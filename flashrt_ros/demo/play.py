# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Ticks the demo's tree and spins its node until the tree is done."""

from __future__ import annotations

import time
from collections.abc import Callable

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.trees import BehaviourTree
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from flashrt_ros.demo.recorder import Recorder
from flashrt_ros.demo.report import Report
from flashrt_ros.demo.tree import DemoTree

TICK_INTERVAL = 0.01  # s


class StepFailedError(Exception):
    """A step of the tree failed."""


def play(
    node: Node,
    *,
    period: int,
    seed: int,
    steps: int,
    on_tick: Callable[[Behaviour], None],
    record: bool = False,
) -> Report:
    """Run the demo against the nodes robot, policy and command.

    Args:
        node: nobody else spins it.
        period: ns between two control ticks.
        seed: of the episodes.
        steps: actions a leg.
        on_tick: gets the step that is running, after each tick of the tree; what it raises ends the demo.
        record: have an incident written at the end.

    Raises:
        StepFailedError: a step failed; the message says which and why.
    """
    demo = DemoTree(Recorder(node, period), seed=seed, steps=steps, record=record)
    tree = BehaviourTree(demo.root)
    tree.setup(node=node)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    try:
        while tree.root.status in (Status.INVALID, Status.RUNNING):
            tree.tick()
            tip = tree.tip() or tree.root
            on_tick(tip)
            _spin(executor, TICK_INTERVAL)
        if tree.root.status == Status.FAILURE:
            raise StepFailedError(f"{tip.name}: {tip.feedback_message}")
        return demo.report()
    finally:
        tree.root.stop(Status.INVALID)  # a goal that is running is canceled
        tree.shutdown()
        executor.shutdown()


def _spin(executor: SingleThreadedExecutor, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        executor.spin_once(timeout_sec=left)
