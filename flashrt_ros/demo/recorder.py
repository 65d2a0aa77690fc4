# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Listens to the nodes: keeps the bytes of a leg, and knows when simulated time stands still."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.node import Node
from rclpy.qos import QoSProfile
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState

from flashrt_ros.demo.leg import Leg
from flashrt_ros.node import qos
from flashrt_ros.node.interfaces import msg
from flashrt_ros.node.stamps import to_nanoseconds


class Recorder:
    """The topics of robot, policy and command between `mark` and `leg`.

    In lockstep each row, each closing of the gate, each raised epoch and each change of the world lets one tick of
    simulated time pass. So it can be told exactly, and not by waiting a while, when nothing more will come.

    Attributes:
        period: ns between two ticks.
    """

    def __init__(self, node: Node, period: int) -> None:
        """`period`: ns between two ticks."""
        self.period = period
        self._commands: dict[int, bytes] = {}
        self._chunks: dict[int, bytes] = {}
        self._floor = 0
        self._started = 0
        self._ran: Any = None
        self._moved = False
        self._ticks_since = 0
        self.clock = 0
        self.gate: Any = None
        self.state: Any = None
        for kind, topic, callback, profile in self._topics():
            node.create_subscription(kind, topic, callback, profile)

    def _topics(self) -> list[tuple[Any, str, Callable[[Any], None], QoSProfile]]:
        reliable, latched = qos.without_gaps(qos.COMMAND), qos.without_gaps(qos.LATCHED)
        return [
            (Clock, "/clock", self._on_clock, reliable),
            (JointState, "joint_command", self._on_command, reliable),
            (msg.ActionChunk, "policy/action_chunk", self._on_chunk, reliable),
            (msg.Executed, "command/executed", self._on_executed, reliable),
            (msg.Gate, "command/gate", self._on_gate, latched),
            (msg.PolicyState, "policy/state", self._on_state, latched),
        ]

    def missing(self) -> str:
        """Return what has not been heard yet of the nodes; empty: all there."""
        heard = {"the robot's /clock": self.clock, "policy/state": self.state, "command/gate": self.gate}
        absent = [name for name, value in heard.items() if not value]
        if absent:
            return f"nothing from {', '.join(absent)} yet"
        return self._following()

    def mark(self) -> None:
        """Begin a leg, or a verb, which raises the epoch."""
        self._commands.clear()
        self._chunks.clear()
        self._moved = False
        self._started = self.clock
        self._floor = self.state.epoch + 1

    def note_world_change(self) -> None:
        """Note that the robot shows its world anew, as of the next tick."""
        self._ticks_since += 1

    def unsettled(self) -> str:
        """Return why more may still come; empty: simulated time stands still, and all of it was heard."""
        if self.state.epoch < self._floor and not self._moved:
            return f"policy/state is at epoch {self.state.epoch} yet, from {self._floor} on the verb has been accepted"
        if self._following():
            return self._following()
        if self._ran is None:
            return "no action has run yet"
        last = to_nanoseconds(self._ran.stamp) + self.period * (1 + self._ticks_since)
        if self.clock != last:
            return f"/clock is at {self.clock / 1e9:.3f} s, it will stand still at {last / 1e9:.3f} s"
        return ""

    def unheard(self, steps: int) -> str:
        """Return what is not here yet of a leg of `steps` actions and its chunks; empty: nothing."""
        if not self._moved or self._ran.steps != steps:
            return f"command/executed has not told of action {steps} yet"
        if self._ran.chunk_id not in self._chunks:
            return f"chunk {self._ran.chunk_id} ran but has not been heard"
        return ""

    def incomplete(self) -> str:
        """Return how many of the commands since `mark` are missing, if time stood still then; empty: none."""
        ticks = (self.clock - self._started) // self.period
        if len(self._commands) == ticks:
            return ""
        return f"{len(self._commands)} of {ticks} joint commands have been heard"

    def leg(self) -> Leg:
        """Return what came since `mark`: every command, and the chunks that ran."""
        last = self._ran.chunk_id if self._ran is not None else 0
        chunks = tuple(data for number, data in sorted(self._chunks.items()) if number <= last)
        return Leg(chunks, tuple(data for _, data in sorted(self._commands.items())))

    def _following(self) -> str:
        if self.state.state != msg.PolicyState.HELD:
            return "the policy is running"
        if self.gate.epoch != self.state.epoch or self.gate.open:
            return f"the gate is at epoch {self.gate.epoch}, the policy at {self.state.epoch}"
        return ""

    def _on_clock(self, message: Clock) -> None:
        self.clock = to_nanoseconds(message.clock)

    def _on_command(self, message: JointState) -> None:
        stamp = to_nanoseconds(message.header.stamp)
        if stamp < self._started:
            return  # of a tick before `mark`, and later here than the clock that followed it
        values = (message.position, message.velocity, message.effort)
        joints = "\0".join(message.name).encode()
        # The robot shows a tick again if its command is late, and gets the same command again.
        self._commands[stamp] = b"\0".join([joints, *(v.tobytes() for v in values)])

    def _on_chunk(self, message: Any) -> None:
        head = f"{list(message.joint_names)} {message.horizon} {message.start} ".encode()
        self._chunks[message.chunk_id] = head + message.data.tobytes()

    def _on_executed(self, message: Any) -> None:
        if message.active:
            self._ran, self._moved = message, True

    def _on_gate(self, message: Any) -> None:
        before, self.gate = self.gate, message
        if message.open:
            self._ticks_since = 0
        elif before is not None and (before.open or message.epoch > before.epoch):
            self._ticks_since += 1

    def _on_state(self, message: Any) -> None:
        self.state = message
