# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A node of the test's own, spun by a thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from rclpy.executors import Executor, ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node

_PAUSE = 0.1  # s in which an executor of several threads sees that it is over


class InOrder(SingleThreadedExecutor):
    """Gives an answer behind the messages that had come before it: rclpy gives those of actions first of all.

    So whoever waits for an answer may go by what the same process had published before.
    """

    def _take_client(self, client: Any) -> Callable[[], Coroutine[Any, Any, None]]:
        return self._behind_messages(super()._take_client(client))

    def _take_waitable(self, waitable: Any) -> Callable[[], Coroutine[Any, Any, None]]:
        return self._behind_messages(super()._take_waitable(waitable))

    def _behind_messages(self, answer: Any) -> Callable[[], Coroutine[Any, Any, None]]:
        async def hear_and_answer() -> None:
            for subscription in [each for node in self.get_nodes() for each in node.subscriptions]:
                while (heard := self._take_subscription(subscription)) is not None:
                    await heard()
            if answer is not None:
                await answer()

        return hear_and_answer


@contextlib.contextmanager
def spun(executor: Executor) -> Iterator[None]:
    """Have a thread run an executor until the block ends.

    The thread ends first: one that is at work while rclpy's executor is shut down finds half of it gone.
    """
    over = threading.Event()

    def spin() -> None:
        with contextlib.suppress(ExternalShutdownException):
            while not over.is_set():
                executor.spin_once(_PAUSE)

    thread = threading.Thread(target=spin, daemon=True)
    thread.start()
    try:
        yield
    finally:
        executor.create_task(over.set)
        thread.join(5.0)
        executor.shutdown()


@contextlib.contextmanager
def spinning(name: str) -> Iterator[Node]:
    """Make a node of this name, serve it until the block ends, and destroy it."""
    node = Node(name)
    executor = InOrder()
    executor.add_node(node)
    try:
        with spun(executor):
            yield node
    finally:
        node.destroy_node()
