# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from rclpy.action import ActionServer, CancelResponse
from rclpy.node import Node
from rclpy.task import Future
from spinning import spinning
from waiting import wait

from flashrt_ros.node.action_client import ThreadSafeActionClient
from flashrt_ros.node.interfaces import action

ANSWERED = 0.2  # s; an answer is there long before that


class SlowHandle:
    """A client's handle that returns from a request only when its answer is there."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._handle, name)
        return self._slow(attribute) if name.startswith("send_") else attribute

    @staticmethod
    def _slow(request: Any) -> Any:
        def send(message: Any) -> Any:
            number = request(message)
            time.sleep(ANSWERED)
            return number

        return send


@pytest.fixture
def server(context: None) -> Iterator[ActionServer]:
    """Runs a goal until it is canceled."""
    canceled = Future()

    async def run(goal: Any) -> Any:
        await canceled
        goal.canceled()
        return action.RunPolicy.Result(steps=7)

    def cancel(goal: Any) -> CancelResponse:
        canceled.set_result(True)
        return CancelResponse.ACCEPT

    with spinning("server") as node:
        yield ActionServer(node, action.RunPolicy, "run", run, cancel_callback=cancel)


def test_answers_that_come_before_a_request_is_noted_are_heard(server: ActionServer, node: Node) -> None:
    client = ThreadSafeActionClient(node, action.RunPolicy, "run")
    assert client.wait_for_server(20.0)
    client._client_handle = SlowHandle(client._client_handle)

    goal = client.send_goal_async(action.RunPolicy.Goal())
    wait(goal.done, what="the goal's acceptance")
    cancel = goal.result().cancel_goal_async()
    wait(cancel.done, what="the answer to cancel")
    result = goal.result().get_result_async()
    wait(result.done, what="the result")

    assert goal.result().accepted
    assert len(cancel.result().goals_canceling) == 1
    assert result.result().result.steps == 7
