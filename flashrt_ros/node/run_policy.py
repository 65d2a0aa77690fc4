# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The action `~/run_policy`: the one way in which the robot moves."""

from __future__ import annotations

from collections.abc import Callable

from rclpy.action import ActionServer, CancelResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.node import Node

from flashrt_ros.node.executor_bridge import ExecutorBridge
from flashrt_ros.node.goal_start import GoalStart, Started
from flashrt_ros.node.interfaces import action
from flashrt_ros.node.mind import Mind
from flashrt_ros.node.motion import Motion
from flashrt_ros.node.policy_control import PolicyControl
from flashrt_ros.node.policy_messages import fill_error
from flashrt_ros.node.policy_run import CANCELED, STEP_LIMIT, End, PolicyRun
from flashrt_ros.node.request_log import RequestLog
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


class RunPolicy:
    """Accepts every goal and says in its result why one was refused; a newer goal preempts."""

    def __init__(
        self,
        node: Node,
        bridge: ExecutorBridge,
        log: RequestLog,
        control: PolicyControl,
        motion: Motion,
        mind: Callable[[], Mind],
        patience: float,
        on_aborted: Callable[[End], None],
    ) -> None:
        """`mind` raises INACTIVE while the node does not serve; for `patience` see PolicyRun.

        `on_aborted` gets the end of a run that nobody asked to end.
        """
        self.run: PolicyRun | None = None
        self._node = node
        self._bridge = bridge
        self._log = log
        self._control = control
        self._mind = mind
        self._patience = patience
        self._motion = motion
        self._on_aborted = on_aborted
        self._runs: dict[bytes, PolicyRun] = {}
        self._server = ActionServer(
            node, action.RunPolicy, "~/run_policy", self._execute, cancel_callback=self._on_cancel
        )

    def interrupt(self, reason: str) -> None:
        """End the active goal: a verb is closing the gate."""
        if self.run is not None:
            self.run.stop(End(reason, ErrorCode.CANCELED, f"ended by a verb: {reason}"))
            self.run = None

    def _on_cancel(self, handle: ServerGoalHandle) -> CancelResponse:
        run = self._runs.get(bytes(handle.goal_id.uuid))
        if run is None:
            return CancelResponse.REJECT  # it has ended, or it repeats the request of another goal
        # Once this has returned the goal is canceling: end it then.
        self._bridge.post(lambda: run.stop(End(CANCELED, ErrorCode.CANCELED, "canceled by the client")))
        return CancelResponse.ACCEPT

    async def _execute(self, handle: ServerGoalHandle) -> action.RunPolicy.Result:
        goal = handle.request
        try:
            result = await self._log.once(goal, lambda: self._apply(handle))
        except FlashrtError as error:
            result = fill_error(action.RunPolicy.Result(reason="refused"), error)
        if handle.is_cancel_requested:
            handle.canceled()
        elif result.error_code == ErrorCode.NONE:
            handle.succeed()
        else:
            handle.abort()
        return result

    async def _apply(self, handle: ServerGoalHandle) -> action.RunPolicy.Result:
        run = PolicyRun(self._bridge, handle.request, self._now, handle.publish_feedback, self._patience)
        key = bytes(handle.goal_id.uuid)
        self._runs[key] = run
        try:
            mind = self._mind()
            started = await self._start(mind, handle.request, run)
            end = await self._finish(mind, run, await run.ended)
        except FlashrtError as error:
            self._node.get_logger().warning(f"goal refused: {error.code.name}: {error}")
            return fill_error(action.RunPolicy.Result(reason="refused"), error)
        finally:
            del self._runs[key]
        if end.code not in (ErrorCode.NONE, ErrorCode.CANCELED):
            self._on_aborted(end)
        head = self._control.head
        self._node.get_logger().info(f"goal ended after {run.steps} steps: {end.reason} {end.message}".rstrip())
        return action.RunPolicy.Result(
            error_code=int(end.code),
            error_msg=end.message,
            reason=end.reason,
            steps=run.steps,
            final_boundary=head.id if head is not None else "",
            prefilled_tokens=started.prefilled_tokens,
        )

    async def _start(self, mind: Mind, goal: action.RunPolicy.Goal, run: PolicyRun) -> Started:
        """Bring session and gate to where the goal begins."""
        start, control = GoalStart(mind, goal), self._control
        await start.fetch()
        with self._motion.one_at_a_time("run_policy"):
            start.check()
            if start.continues and not control.spent:
                await self._motion.gate_closed()
            else:
                await self._motion.close_gate(mind, "starting" if self.run is None else "preempted")
            epoch = control.epoch
            started = await mind.device.run(start.apply)
            control.head = started.head
            if started.began is not None:
                mind.keeper.keep(started.began)
            if self._mind() is not mind or control.epoch != epoch or control.spent:
                raise FlashrtError(ErrorCode.CANCELED, f"before it ran, the gate was closed: {control.reason}")
            if run.end is None:
                self.run = run
                mind.inference.start(epoch, lambda: control.closed_at, started.reinstated)
                control.run(goal.step_limit)
                run.running()
                self._node.get_logger().info(f"goal runs from boundary {started.head.id}: {started.head.instruction!r}")
        return started

    async def _finish(self, mind: Mind, run: PolicyRun, end: End) -> End:
        """Leave the gate closed and nothing planned; a verb that interrupted the run sees to that itself."""
        if self.run is not run:
            return end
        try:
            if end.gate_closed:
                await self._rest(mind, run, end)
            else:
                self.run = None
                head = await self._motion.close_gate(mind, end.reason)
                self._control.head = await self._bridge.result(head)
                self._control.publish()
        except FlashrtError as error:
            return end if end.code or error.code is ErrorCode.CANCELED else End(end.reason, error.code, str(error))
        finally:
            if self.run is run:
                self.run = None
        return end

    async def _rest(self, mind: Mind, run: PolicyRun, end: End) -> None:
        """Follow a gate that is closed already."""
        if end.reason == STEP_LIMIT:
            # What was asked for is finished, so that the state behind the goal depends on its steps alone.
            await mind.inference.idle()
        if self.run is not run:
            return
        self._control.rest(end.reason)
        mind.inference.stop()
        await self._motion.gate_closed()
        if self.run is run:
            self._control.head = await mind.device.run(mind.discard_plan)
            self._control.publish()

    def _now(self) -> int:
        return int(self._node.get_clock().now().nanoseconds)
