# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""An action client for any thread."""

from __future__ import annotations

import threading
from typing import Any

from rclpy.action import ActionClient
from rclpy.action.client import ClientGoalHandle
from rclpy.task import Future


class ThreadSafeActionClient(ActionClient):
    """rclpy's ActionClient, whose requests may come from another thread than the one that spins.

    rclpy 7.1 notes a request after it has sent it, and drops an answer that is taken in between ("Ignoring unexpected
    goal response"): the request would then wait for ever.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """See ActionClient."""
        self._requesting = threading.Lock()
        super().__init__(*args, **kwargs)

    def send_goal_async(self, *args: Any, **kwargs: Any) -> Future:
        """See ActionClient."""
        with self._requesting:
            return super().send_goal_async(*args, **kwargs)

    def _cancel_goal_async(self, goal_handle: ClientGoalHandle) -> Future:
        with self._requesting:
            return super()._cancel_goal_async(goal_handle)

    def _get_result_async(self, goal_handle: ClientGoalHandle) -> Future:
        with self._requesting:
            return super()._get_result_async(goal_handle)

    async def execute(self, taken_data: dict[str, Any]) -> None:
        """Handle answers, after the request that is on its way, if there is one, has been noted."""
        with self._requesting:
            pass
        await super().execute(taken_data)
