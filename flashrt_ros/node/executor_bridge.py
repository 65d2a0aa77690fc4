# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From other threads into the executor thread, and coroutines there that wait for them."""

from __future__ import annotations

import concurrent.futures
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from rclpy.clock import Clock, ClockType
from rclpy.exceptions import InvalidHandle
from rclpy.node import Node

from flashrt_ros.node.executor import Future
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

Result = TypeVar("Result")


class ExecutorBridge:
    """Runs posted calls on the executor thread, in the order in which they were posted.

    A coroutine that the executor runs is looked at again whenever the executor wakes up, so whoever completes what
    it waits for must wake it: `resolve` does.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._clock = Clock(clock_type=ClockType.STEADY_TIME)
        self._calls: deque[Callable[[], None]] = deque()
        self._guard = node.create_guard_condition(self.run)

    def post(self, call: Callable[[], None]) -> None:
        """Have the executor thread make a call; from any thread."""
        self._calls.append(call)
        self._wake()

    def leave(self, call: Callable[[], None]) -> None:
        """Have the executor thread make a call behind those posted, whenever it comes to `run`; from any thread.

        For what nobody waits for: waking the executor would take longer than the call.
        """
        self._calls.append(call)

    def resolve(self, future: Future, value: Any = None) -> None:
        """Complete a future that a coroutine waits for, unless it is complete; from the executor thread."""
        if not future.done():
            future.set_result(value)
            self._wake()

    async def result(self, future: concurrent.futures.Future[Result]) -> Result:
        """Wait for what another thread computes. Raises what it raised; CANCELED if it was dropped from its queue."""
        waiting = Future()
        future.add_done_callback(lambda _: self.post(lambda: self.resolve(waiting)))
        await waiting
        try:
            return future.result()
        except concurrent.futures.CancelledError as error:
            raise FlashrtError(ErrorCode.CANCELED, "overtaken by a later request before it began") from error

    async def within(self, future: Future, seconds: float) -> bool:
        """Wait for a future, but no longer than `seconds` of steady time. Returns whether it is complete."""
        either = Future()
        timer = self._node.create_timer(seconds, lambda: self.resolve(either), clock=self._clock)
        future.add_done_callback(lambda _: self.resolve(either))
        try:
            await either
        finally:
            self._node.destroy_timer(timer)
        return bool(future.done())

    def run(self) -> None:
        """Make the calls that were posted or left; on the executor thread."""
        while self._calls:
            self._calls.popleft()()

    def _wake(self) -> None:
        try:
            self._guard.trigger()
        except InvalidHandle:
            self._calls.clear()  # the node is gone, and with it everybody who could wait
