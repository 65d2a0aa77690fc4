# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Publishes what a controller decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.duration import Duration
from rclpy.node import Node

from flashrt_ros.node import qos
from flashrt_ros.node.command_messages import command_message
from flashrt_ros.node.interfaces import msg
from flashrt_ros.node.stamps import from_nanoseconds
from flashrt_ros.policy.contract_action import Action
from flashrt_ros.policy.controller import ExecutedTick
from flashrt_ros.policy.gate import GateState
from flashrt_ros.policy.safety import SafetyAction

DRY_RUN_TOPIC = "~/dry_run_command"
_FLUSH = Duration(seconds=0.2)


class CommandOutput:
    """The command topic (or the one of a dry run), `~/executed` and `~/gate`."""

    def __init__(
        self,
        node: Node,
        action: Action,
        *,
        dry_run: bool,
        now: Callable[[], int],
        on_gate: Callable[[GateState], None],
    ) -> None:
        """`now` returns ROS time in ns; `on_gate` is called after a change of the gate was published."""
        self._node = node
        self._now = now
        self._on_gate = on_gate
        kind, self._fill = command_message(action, action.joints)
        safety = SafetyAction(action.joints, action.safety)
        _, self._fill_held = command_message(action, safety.joints)
        self._held = safety.columns
        topic = DRY_RUN_TOPIC if dry_run else action.command.topic
        self._command = node.create_publisher(kind, topic, qos.COMMAND)
        self._executed = node.create_publisher(msg.Executed, "~/executed", qos.EXECUTED)
        self._gate = node.create_publisher(msg.Gate, "~/gate", qos.LATCHED)
        self._tick = msg.Executed()

    def command(self, stamp: int, rows: NDArray[np.float64]) -> None:
        """Send joint targets [rows, joints]; `stamp` in ns."""
        self._command.publish(self._fill(stamp, rows))

    def safety(self, stamp: int, rows: NDArray[np.float64]) -> None:
        """Bring the joints that are held to rest along `rows` [rows, joints]; `stamp` in ns.

        They take the place of all rows that were handed over.
        """
        self._command.publish(self._fill_held(stamp, rows[:, self._held]))

    def executed(self, tick: ExecutedTick) -> None:
        """Report a tick."""
        message = self._tick
        message.stamp = from_nanoseconds(tick.stamp)
        message.epoch = tick.epoch
        message.active = tick.active
        message.chunk_id = tick.chunk_id
        message.cursor = tick.cursor
        message.remaining = tick.remaining
        message.steps = tick.steps
        message.infer = tick.infer
        self._executed.publish(message)

    def gate(self, state: GateState) -> None:
        """Report a change of the gate."""
        self._gate.publish(
            msg.Gate(
                stamp=from_nanoseconds(self._now()),
                epoch=state.epoch,
                open=state.open,
                dry_run=state.dry_run,
                enabled=state.enabled,
                closed_at=from_nanoseconds(state.closed_at),
                reason=state.reason,
            )
        )
        self._on_gate(state)

    @property
    def publishers(self) -> tuple[Any, Any, Any]:
        """Of commands, ticks and the gate."""
        return self._command, self._executed, self._gate

    def flush(self) -> None:
        """Wait until what was said last has arrived, for as long as an ending process may wait."""
        for publisher in (self._command, self._gate):
            publisher.wait_for_all_acked(_FLUSH)

    def destroy(self) -> None:
        """Remove the publishers."""
        for publisher in self.publishers:
            self._node.destroy_publisher(publisher)
