# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A goal of policy_node's action."""

from __future__ import annotations

from typing import Any

from rclpy.task import Future
from waiting import wait

from flashrt_ros.node.action_client import ThreadSafeActionClient
from flashrt_ros.node.interfaces import action


class Goal:
    """A goal of run_policy, once it is accepted."""

    def __init__(self, client: ThreadSafeActionClient, patience: float = 20.0, **fields: Any) -> None:
        """`patience`: s to wait for each answer; `fields`: of the goal."""
        self.feedback: list[Any] = []
        self._patience = patience
        assert client.wait_for_server(60.0)
        sent = client.send_goal_async(
            action.RunPolicy.Goal(**fields), lambda message: self.feedback.append(message.feedback)
        )
        self._handle = self._answer(sent, "the goal's acceptance")
        self._end = self._handle.get_result_async()

    def done(self) -> bool:
        return bool(self._end.done())

    def answer(self) -> Any:
        """Result and status."""
        return self._answer(self._end, "the goal's result")

    def result(self) -> Any:
        return self.answer().result

    def cancel(self) -> Any:
        return self._answer(self._handle.cancel_goal_async(), "the answer to cancel")

    def _answer(self, future: Future, what: str) -> Any:
        wait(future.done, self._patience, what)
        return future.result()
