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
from flashrt_ros.policy.contract_action import Action, Command
from flashrt_ros.policy.controller import ExecutedTick
from flashrt_ros.policy.gate import GateState
from flashrt_ros.policy.safety import SafetyAction

DRY_RUN_TOPIC = "~/dry_run_command"
_FLUSH = Duration(seconds=0.2)


class _CommandTopic:
    """The publisher of one command, or of its shadow in a dry run."""

    def __init__(self, node: Node, action: Action, command: Command, topic: str) -> None:
        held = [joint for joint in SafetyAction(action.joints, action.safety).joints if joint in command.joints]
        kind, self._fill = command_message(command, command.named(command.joints), action.period)
        _, self._fill_held = command_message(command, command.named(held), action.period)
        whole = command.joints == action.joints
        self._columns = slice(None) if whole else [action.joints.index(joint) for joint in command.joints]
        self._held = [action.joints.index(joint) for joint in held]
        self.publisher = node.create_publisher(kind, topic, qos.COMMAND)

    def command(self, stamp: int, rows: NDArray[np.float64]) -> None:
        self.publisher.publish(self._fill(stamp, rows[:, self._columns]))

    def safety(self, stamp: int, rows: NDArray[np.float64]) -> None:
        if self._held:
            self.publisher.publish(self._fill_held(stamp, rows[:, self._held]))


class CommandOutput:
    """The command topics (or those of a dry run), `~/executed` and `~/gate`."""

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
        self._topics = [
            _CommandTopic(node, action, command, _shadow(action, command) if dry_run else command.topic)
            for command in action.commands
        ]
        self._executed = node.create_publisher(msg.Executed, "~/executed", qos.EXECUTED)
        self._gate = node.create_publisher(msg.Gate, "~/gate", qos.LATCHED)
        self._tick = msg.Executed()

    def command(self, stamp: int, rows: NDArray[np.float64]) -> None:
        """Send commands [rows, joints]; `stamp` in ns."""
        for topic in self._topics:
            topic.command(stamp, rows)

    def safety(self, stamp: int, rows: NDArray[np.float64]) -> None:
        """Bring the joints that are held to rest along `rows` [rows, joints]; `stamp` in ns.

        They take the place of all rows that were handed over.
        """
        for topic in self._topics:
            topic.safety(stamp, rows)

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
    def commands(self) -> list[Any]:
        """The publishers of commands."""
        return [topic.publisher for topic in self._topics]

    @property
    def publishers(self) -> list[Any]:
        """Of commands, ticks and the gate."""
        return [*self.commands, self._executed, self._gate]

    def flush(self) -> None:
        """Wait until what was said last has arrived, for as long as an ending process may wait."""
        for publisher in (*self.commands, self._gate):
            publisher.wait_for_all_acked(_FLUSH)

    def destroy(self) -> None:
        """Remove the publishers."""
        for publisher in self.publishers:
            self._node.destroy_publisher(publisher)


def _shadow(action: Action, command: Command) -> str:
    """Return where a command goes in a dry run; of several, each below a name of its own."""
    return DRY_RUN_TOPIC if len(action.commands) == 1 else f"{DRY_RUN_TOPIC}/{command.topic.lstrip('~/')}"
