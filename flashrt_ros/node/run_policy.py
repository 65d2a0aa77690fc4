# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The action `~/run_policy`, and what it has in common with `~/start_policy`: the two ways in which the robot moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rclpy.action import ActionServer, CancelResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.node import Node

from flashrt_ros.node.executor_bridge import ExecutorBridge
from flashrt_ros.node.goal_start import GoalStart
from flashrt_ros.node.interfaces import action
from flashrt_ros.node.mind import Mind
from flashrt_ros.node.motion import Motion
from flashrt_ros.node.policy_control import PolicyControl
from flashrt_ros.node.policy_messages import fill_error
from flashrt_ros.node.policy_run import CANCELED, STEP_LIMIT, End, Goal, PolicyRun
from flashrt_ros.node.rate_limit import RateLimit
from flashrt_ros.node.request_log import RequestLog
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary


@dataclass(frozen=True, slots=True)
class Begun:
    """A run that was let go: by which mind, from which boundary, in which epoch."""

    mind: Mind
    head: Boundary
    prefilled_tokens: int
    epoch: int


class RunPolicy:
    """Accepts every goal and says in its result why one was refused; a newer goal preempts."""

    def __init__(
        self,
        node: Node,
        bridge: ExecutorBridge,
        log: RequestLog,
        limit: RateLimit,
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
        self.trouble = ""
        """How the newest run failed; empty: it did not, or is going on."""
        self._node = node
        self._bridge = bridge
        self._log = log
        self._limit = limit
        self._control = control
        self._mind = mind
        self._patience = patience
        self._motion = motion
        self._on_aborted = on_aborted
        self._goals: dict[bytes, PolicyRun] = {}
        self._open: list[PolicyRun] = []
        self._server = ActionServer(
            node, action.RunPolicy, "~/run_policy", self._execute, cancel_callback=self._on_cancel
        )

    @property
    def head(self) -> str:
        """Id of the newest boundary; empty: there is none."""
        return self._control.head.id if self._control.head is not None else ""

    def interrupt(self, reason: str) -> None:
        """End the active goal: a verb is closing the gate."""
        if self.run is not None:
            self.run.stop(End(reason, ErrorCode.CANCELED, f"ended by a verb: {reason}"))
            self.run = None

    def new_run(self, goal: Goal, feedback: Callable[[action.RunPolicy.Feedback], None]) -> PolicyRun:
        """Make the run that `start` begins."""
        return PolicyRun(self._bridge, goal, self._now, feedback, self._patience)

    async def start(self, goal: Goal, run: PolicyRun) -> Begun:
        """Let the robot move. Raises what is refused, as FlashrtError; nothing is disturbed by that."""
        self._open.append(run)
        try:
            return await self._start(self._mind(), goal, run)
        except BaseException as error:
            self._close(run)
            if isinstance(error, FlashrtError):
                self._node.get_logger().warning(f"goal refused: {error.code.name}: {error}")
            raise

    async def finish(self, run: PolicyRun, begun: Begun) -> action.RunPolicy.Result:
        """Wait for the end of a run that was started, and for the closed gate behind it."""
        try:
            end = await self._finish(begun.mind, run, await run.ended)
        finally:
            self._close(run)
        if end.failed:
            self._on_aborted(end)
        self._node.get_logger().info(f"goal ended after {run.steps} steps: {end.reason} {end.message}".rstrip())
        return action.RunPolicy.Result(
            error_code=int(end.code),
            error_msg=end.message,
            reason=end.reason,
            steps=run.steps,
            final_boundary=self.head,
            prefilled_tokens=begun.prefilled_tokens,
        )

    async def stop(self, reason: str) -> PolicyRun | None:
        """End whatever runs, or is about to, and wait until that is done; the run that moved, None: there was none."""
        self._mind()
        running, open_runs = self.run, list(self._open)
        for run in open_runs:
            run.stop(End(reason, ErrorCode.CANCELED, f"ended by a client: {reason}"))
        for run in open_runs:
            await run.over
        await self._motion.gate_closed()
        return running

    def _on_cancel(self, handle: ServerGoalHandle) -> CancelResponse:
        run = self._goals.get(bytes(handle.goal_id.uuid))
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
            result = _refused(error)
        if handle.is_cancel_requested:
            handle.canceled()
        elif result.error_code == ErrorCode.NONE:
            handle.succeed()
        else:
            handle.abort()
        return result

    async def _apply(self, handle: ServerGoalHandle) -> action.RunPolicy.Result:
        run = self.new_run(handle.request, handle.publish_feedback)
        key = bytes(handle.goal_id.uuid)
        self._goals[key] = run
        try:
            self._limit.take("~/run_policy")
            return await self.finish(run, await self.start(handle.request, run))
        except FlashrtError as error:
            return _refused(error)
        finally:
            del self._goals[key]

    async def _start(self, mind: Mind, goal: Goal, run: PolicyRun) -> Begun:
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
                self.run, self.trouble = run, ""
                mind.inference.start(epoch, lambda: control.closed_at, started.reinstated)
                control.run(goal.step_limit)
                run.running()
                self._node.get_logger().info(f"goal runs from boundary {started.head.id}: {started.head.instruction!r}")
        return Begun(mind, started.head, started.prefilled_tokens, epoch)

    async def _finish(self, mind: Mind, run: PolicyRun, end: End) -> End:
        """Leave the gate closed and nothing planned; a verb that interrupted the run sees to that itself."""
        if self.run is not run:
            return end
        self.trouble = end.said() if end.failed else ""
        try:
            if end.gate_closed:
                await self._rest(mind, run, end)
            else:
                self.run = None
                head = await self._motion.close_gate(mind, end.said())
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
        self._control.rest(end.said())
        mind.inference.stop()
        await self._motion.gate_closed()
        if self.run is run:
            self._control.head = await mind.device.run(mind.discard_plan)
            self._control.publish()

    def _close(self, run: PolicyRun) -> None:
        self._open.remove(run)
        self._bridge.resolve(run.over)

    def _now(self) -> int:
        return int(self._node.get_clock().now().nanoseconds)


def _refused(error: FlashrtError) -> action.RunPolicy.Result:
    result: action.RunPolicy.Result = fill_error(action.RunPolicy.Result(reason="refused"), error)
    return result
