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


class StepFailedError(Exception):
    """A step of the tree failed."""


class Player:
    """Ticks trees that use one node, which nobody else spins. Leaving the context cancels a goal that is running."""

    def __init__(self, node: Node, on_tick: Callable[[Behaviour], None], interval: float = 0.01) -> None:
        """Wait for `run`.

        Args:
            node: nobody else spins it.
            on_tick: gets the step that is running, after each tick of a tree; what it raises ends the run.
            interval: seconds between two ticks.
        """
        self._node = node
        self._on_tick = on_tick
        self._interval = interval
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(node)
        self._trees: dict[Behaviour, BehaviourTree] = {}

    def __enter__(self) -> Player:
        return self

    def __exit__(self, *raised: object) -> None:
        for tree in self._trees.values():
            tree.root.stop(Status.INVALID)
            tree.shutdown()
        self._executor.shutdown()

    def run(self, root: Behaviour) -> None:
        """Tick a tree until it has succeeded; it may be run again.

        Raises:
            StepFailedError: a step failed; the message says which and why.
        """
        if root not in self._trees:
            self._trees[root] = BehaviourTree(root)
            self._trees[root].setup(node=self._node)
        tree = self._trees[root]
        root.stop(Status.INVALID)
        while root.status in (Status.INVALID, Status.RUNNING):
            tree.tick()
            tip = tree.tip() or root
            self._on_tick(tip)
            _spin(self._executor, self._interval)
        if root.status == Status.FAILURE:
            raise StepFailedError(f"{tip.name}: {tip.feedback_message}")


def play(
    node: Node,
    *,
    period: int,
    seed: int,
    steps: int,
    on_tick: Callable[[Behaviour], None],
    record: bool = False,
) -> Report:
    """Run the tree of the verbs against the nodes robot, policy and command.

    Args:
        node: nobody else spins it.
        period: ns between two control ticks.
        seed: of the episodes.
        steps: actions a leg.
        on_tick: see Player.
        record: have an incident written at the end.

    Raises:
        StepFailedError: a step failed; the message says which and why.
    """
    demo = DemoTree(Recorder(node, period), seed=seed, steps=steps, record=record)
    with Player(node, on_tick) as player:
        player.run(demo.root)
    return demo.report()


def _spin(executor: SingleThreadedExecutor, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        executor.spin_once(timeout_sec=left)
