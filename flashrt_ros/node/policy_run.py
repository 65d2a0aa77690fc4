# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A goal while the robot moves, and everything that can end it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from flashrt_ros.node.executor import Future
from flashrt_ros.node.executor_bridge import ExecutorBridge
from flashrt_ros.node.interfaces import action, msg, srv
from flashrt_ros.node.mind import Mind
from flashrt_ros.node.policy_control import PolicyControl
from flashrt_ros.node.stamps import duration_of, to_nanoseconds
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

STEP_LIMIT = "step_limit"
TIME_LIMIT = "time_limit"
CANCELED = "canceled"

_FEEDBACK_PERIOD = 0.1
_UNUSED_CHUNKS = 3
"""Chunks that command_node was sent and none of which it ran, in all of the patience: it will run none."""
_REASON_LIMIT = 256
_GATE_CLOSED = "the gate closed: "
_GATE_ERRORS = {
    STEP_LIMIT: ErrorCode.NONE,
    "start_tolerance": ErrorCode.START_TOLERANCE,
    "bad_chunk": ErrorCode.BAD_CONTRACT,
    "joints": ErrorCode.BAD_OBSERVATION,
    "following": ErrorCode.BAD_OBSERVATION,
    "inactive": ErrorCode.INACTIVE,
    "heartbeat": ErrorCode.GATE_TIMEOUT,
    "spent": ErrorCode.GATE_TIMEOUT,
    "publisher": ErrorCode.BUSY,
    "time": ErrorCode.GATE_TIMEOUT,
}
"""What it means for a goal that command_node has closed the gate, by reason; any other: CANCELED."""


Goal: TypeAlias = "action.RunPolicy.Goal | srv.StartPolicy.Request"
"""What is asked of a run, by a goal or by a call; the fields are the same."""


@dataclass(frozen=True, slots=True)
class End:
    """Why a run ended. `gate_closed`: command_node has closed the gate by itself; else it is still to be closed."""

    reason: str
    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    gate_closed: bool = False

    @property
    def failed(self) -> bool:
        """Whether it ended by something that went wrong, as opposed to what somebody asked for."""
        return self.code not in (ErrorCode.NONE, ErrorCode.CANCELED)

    def said(self) -> str:
        """The reason as the state tells it: "token", or "token: explanation" where something went wrong."""
        why = self.message.removeprefix(_GATE_CLOSED).removeprefix(f"{self.reason}: ")
        return f"{self.reason}: {why}"[:_REASON_LIMIT] if self.failed else self.reason


class PolicyRun:
    """Watches one goal from the moment when it is accepted; the first end that is found is its end."""

    def __init__(
        self,
        bridge: ExecutorBridge,
        goal: Goal,
        now: Callable[[], int],
        feedback: Callable[[action.RunPolicy.Feedback], None],
        patience: float,
    ) -> None:
        """Begin to watch.

        Args:
            bridge: of the node's executor.
            goal: whose limits are kept.
            now: ROS time in ns.
            feedback: publishes feedback.
            patience: seconds without an observation, or without an open gate, after which the goal is given up.
        """
        self.ended = Future()
        self.over = Future()
        """Complete when the gate is closed behind it too."""
        self.steps = 0
        self._bridge = bridge
        self._goal = goal
        self._now = now
        self._feedback = feedback
        self._patience = patience
        self._deadline: int | None = None
        self._running_since: float | None = None
        self._fed = 0.0
        self._progressed = 0.0
        self._sent = 0

    @property
    def end(self) -> End | None:
        """The end, once there is one."""
        return self.ended.result() if self.ended.done() else None

    def stop(self, end: End) -> None:
        """End the run, unless it has ended."""
        self._bridge.resolve(self.ended, end)

    def fail(self, error: FlashrtError) -> None:
        """End the run with an error."""
        self.stop(End("inference_failed", error.code, str(error)))

    def running(self) -> None:
        """Count time from now on."""
        limit = to_nanoseconds(self._goal.time_limit)
        self._deadline = self._now() + limit if limit else None
        self._running_since = self._progressed = time.monotonic()

    def gate_closed(self, reason: str) -> None:
        """Take that command_node has closed the gate by itself."""
        token = reason.partition(":")[0]
        if token != STEP_LIMIT:  # the tick that ran the last step says so itself
            self.stop(End(token, _GATE_ERRORS.get(token, ErrorCode.CANCELED), f"{_GATE_CLOSED}{reason}", True))

    def on_executed(self, tick: msg.Executed, mind: Mind, control: PolicyControl) -> None:
        """Take a tick of the running epoch."""
        self.steps = tick.steps
        if 0 < self._goal.step_limit <= tick.steps:
            self.stop(End(STEP_LIMIT, gate_closed=True))
        now = time.monotonic()
        if tick.active:
            self._progressed, self._sent = now, mind.inference.sent
        if now - self._fed >= _FEEDBACK_PERIOD:
            self._fed = now
            self._feedback(
                action.RunPolicy.Feedback(
                    step=tick.steps,
                    queue_depth=tick.remaining,
                    inference_time=duration_of(round(mind.inference.times.last * 1e9)),
                    boundary=control.head.id if control.head is not None else "",
                )
            )

    def watch(self, mind: Mind, control: PolicyControl) -> None:
        """Look for what no message brings; called some times a second."""
        if self._running_since is None:
            return
        if self._deadline is not None and self._now() >= self._deadline:
            self.stop(End(TIME_LIMIT))
        if control.silence > mind.contract.heartbeat_timeout:
            message = f"command_node has been silent for {control.silence:.1f} s"
            self.stop(End("command_node_lost", ErrorCode.GATE_TIMEOUT, message))
        unseen_for = mind.inference.waiting_for
        if unseen_for > self._patience:
            message = f"no observation for {self._patience:g} s: {mind.inference.lacking}"
            self.stop(End("no_observation", ErrorCode.BAD_OBSERVATION, message))
        started = time.monotonic() - self._running_since
        if not control.opened and not mind.inference.busy and not unseen_for and started > self._patience:
            reason = control.gate.reason if control.gate is not None else "not heard"
            message = f"the gate did not open within {self._patience:g} s: {reason}"
            self.stop(End("gate_not_opened", ErrorCode.GATE_TIMEOUT, message))
        unused = mind.inference.sent - self._sent
        stuck_for = time.monotonic() - self._progressed
        if unused >= _UNUSED_CHUNKS and stuck_for > self._patience:
            message = f"command_node ran none of {unused} chunks in {stuck_for:.1f} s; its diagnostics say why"
            self.stop(End("chunks_not_run", ErrorCode.GATE_TIMEOUT, message))
