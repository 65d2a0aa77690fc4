# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The behaviour that lets the policy drive the robot."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from action_msgs.msg import GoalStatus
from py_trees.behaviour import Behaviour
from py_trees.common import Access, Status
from rclpy.action.client import ClientGoalHandle
from rclpy.node import Node
from rclpy.task import Future

from flashrt_ros.node import interfaces
from flashrt_ros.node.action_client import ThreadSafeActionClient
from flashrt_ros.node.behaviour_arguments import check_ros_name, check_run, check_time_limit, named, retry_of
from flashrt_ros.node.behaviour_service import error_of, new_request_id, required_node
from flashrt_ros.node.stamps import duration_of


class RunPolicy(Behaviour):
    """Sends one run_policy goal a round and waits for its result.

    Preempted by another branch, or out of time, it cancels the goal; one that the server accepts only later, too. So
    every round has a request_id of its own. The newest feedback is in `feedback`, in words in feedback_message.

    Attributes:
        response: the result of the newest round; None until it has come.
        feedback: the newest feedback of the newest round; None until it has come.
    """

    def __init__(
        self,
        instruction: str = "",
        seed: int = 0,
        start_from: str = "",
        retry: int | Callable[[], int] = 0,
        *,
        step_limit: int = 0,
        run_limit: float = 0.0,
        name: str = "run_policy",
        policy: str = "policy",
        time_limit: float = 60.0,
        key: str = "",
    ) -> None:
        """Describe the goal; the first six arguments are the fields of RunPolicy.action.

        Args:
            instruction: begin a new episode with it, or append it to `start_from`; empty: continue.
            seed: of the new episode.
            start_from: the capsule to restore first.
            retry: folded into the generator's key, so that a retry differs; a function is asked in each round.
            step_limit: control steps; 0: none.
            run_limit: seconds, judged by policy_node; reaching it is a success. 0: none.
            name: of the behaviour.
            policy: name of the policy's node.
            time_limit: seconds for all of it, the search for the server included; reaching it is a failure.
            key: blackboard key that gets each result.
        """
        super().__init__(name)
        self.action = f"{policy}/run_policy"
        with named(name):
            check_ros_name("action", self.action)
            check_time_limit(time_limit)
        self.instruction, self.seed, self.start_from, self.retry = instruction, seed, start_from, retry
        self.step_limit, self.run_limit, self.time_limit = step_limit, run_limit, time_limit
        self.check()
        self.response: Any = None
        self.feedback: Any = None
        self._node: Node | None = None
        self._client: ThreadSafeActionClient | None = None
        self._round: _Round | None = None
        self._begun = 0.0
        self._key = key
        self._board = self.attach_blackboard_client() if key else None
        if self._board is not None:
            self._board.register_key(key, access=Access.WRITE)

    def setup(self, **kwargs: Any) -> None:
        """Make the action client; the argument `node` is an rclpy node. The server need not be there yet."""
        self._node = required_node(self, kwargs)
        self._client = ThreadSafeActionClient(self._node, interfaces.action.RunPolicy, self.action)

    def initialise(self) -> None:
        """Begin a round."""
        self.response = self.feedback = None
        self.feedback_message = ""
        self._begun = time.monotonic()

    def update(self) -> Status:
        """Send the goal when the server is there, then look for the result."""
        client, running = self._client, self._round
        if client is None:
            raise RuntimeError(f"behaviour {self.name!r} was ticked before setup(node=...)")
        if running is not None and running.rejected():
            return self._failed(f"{self.action} rejected the goal; look at its node's log")
        if running is not None and running.answer is not None:
            return self._judged(running.answer)
        ready = client.server_is_ready()
        if time.monotonic() - self._begun > self.time_limit:
            return self._failed(f"{self.action} {self._lateness(ready)}")
        if running is not None and not ready:
            return self._failed(f"{self.action} went away while the policy ran; look at its node's log")
        if running is None and ready:
            try:
                goal = self._goal()
            except ValueError as error:
                return self._failed(str(error))
            self._round = _Round(client, goal, self._on_feedback)
        if self.feedback is None:
            self.feedback_message = f"waiting for {self.action}" + ("" if ready else " to appear")
        return Status.RUNNING

    def terminate(self, new_status: Status) -> None:
        """Cancel a goal that has no result yet."""
        if self._round is not None and self._round.answer is None:
            self._round.cancel()
        self._round = None

    def shutdown(self) -> None:
        """Destroy the action client."""
        if self._client is not None:
            self._client.destroy()
        self._node = self._client = None

    def check(self) -> None:
        """Raise ValueError for what no goal can hold, or is always refused; a function as `retry` is not asked."""
        with named(self.name):
            check_run(self.instruction, self.seed, self.start_from, self.retry, self.step_limit, self.run_limit)

    def _goal(self) -> Any:
        self.check()
        with named(self.name):
            retry = retry_of(self.retry)
        return interfaces.action.RunPolicy.Goal(
            request_id=new_request_id(),
            instruction=self.instruction,
            seed=self.seed,
            start_from=self.start_from,
            retry=retry,
            time_limit=duration_of(round(self.run_limit * 1e9)),
            step_limit=self.step_limit,
        )

    def _on_feedback(self, running: _Round, feedback: Any) -> None:
        if running is self._round:
            self.feedback = feedback
            self.feedback_message = f"step {feedback.step}, {feedback.queue_depth} queued, at {feedback.boundary}"

    def _judged(self, answer: Any) -> Status:
        self.response = answer.result
        if self._board is not None:
            self._board.set(self._key, answer.result)
        trouble = error_of(answer.result, interfaces.srv.Restore.Response)
        if trouble:
            return self._failed(trouble)
        if answer.status != GoalStatus.STATUS_SUCCEEDED:
            return self._failed(f"{self.action} ended early: {answer.result.reason}")
        self.feedback_message = f"{answer.result.steps} steps, {answer.result.reason}"
        return Status.SUCCESS

    def _lateness(self, ready: bool) -> str:
        if self._round is not None and self._round.accepted():
            return f"was not done after {self.time_limit:g} s and was canceled"
        if ready:
            return f"did not accept the goal within {self.time_limit:g} s"
        return f"is not there after {self.time_limit:g} s; start its node, or check the name and ROS_DOMAIN_ID"

    def _failed(self, message: str) -> Status:
        self.feedback_message = message
        return Status.FAILURE


class _Round:
    """One goal on its way. Its callbacks run where the node is spun."""

    def __init__(self, client: ThreadSafeActionClient, goal: Any, on_feedback: Any) -> None:
        self.answer: Any = None
        self._handle: ClientGoalHandle | None = None
        self._canceled = False
        sent = client.send_goal_async(goal, feedback_callback=lambda message: on_feedback(self, message.feedback))
        sent.add_done_callback(self._on_accepted)

    def accepted(self) -> bool:
        return self._handle is not None and self._handle.accepted

    def rejected(self) -> bool:
        return self._handle is not None and not self._handle.accepted

    def cancel(self) -> None:
        """Cancel the goal, now or as soon as it is accepted."""
        self._canceled = True
        if self.accepted() and self._handle is not None:
            self._handle.cancel_goal_async()

    def _on_accepted(self, sent: Future) -> None:
        self._handle = sent.result()
        if not self._handle.accepted:
            return
        self._handle.get_result_async().add_done_callback(self._on_result)
        if self._canceled:
            self._handle.cancel_goal_async()

    def _on_result(self, got: Future) -> None:
        self.answer = got.result()
