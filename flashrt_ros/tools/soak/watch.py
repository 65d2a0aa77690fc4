# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the nodes say and command, and what must hold of it at any time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node
from sensor_msgs.msg import JointState

from flashrt_ros.node import qos
from flashrt_ros.node.interfaces import msg
from flashrt_ros.policy.contract import Contract
from flashrt_ros.tools.soak.link import TOPICS

_REMEMBERED = 1000
_MEASURED = 50
_ROUNDING = 1e-9
_PAUSED = ("time: no tick for", "time: stopped for")


@dataclass(frozen=True, slots=True)
class Command:
    """What the robot was commanded, and when it came, s of `time.monotonic`."""

    at: float
    positions: NDArray[np.float64]


class Watch:
    """Hears the nodes.

    Attributes:
        gate: the newest; so is `state`.
        moved_at: when the newest tick that ran an action came, s of `time.monotonic`.
        horizon: rows of a chunk.
        commands: the newest.
        measured: the newest joints, in the contract's order.
        count: of all commands; `changes`: of those that differed from the one before.
        violations: what must never be and was.
    """

    def __init__(self, node: Node, contract: Contract) -> None:
        action = contract.action
        self.gate = msg.Gate()
        self.state = msg.PolicyState()
        self.moved_at = 0.0
        self.horizon = 0
        self.commands: deque[Command] = deque(maxlen=_REMEMBERED)
        self.measured: deque[NDArray[np.float64]] = deque(maxlen=_MEASURED)
        self.count = 0
        self.changes = 0
        self.violations: list[str] = []
        self._joints: Sequence[str] = action.joints
        self._low, self._high = np.array(action.limits.low), np.array(action.limits.high)
        self._jump = np.array(action.limits.step) + action.start_tolerance
        node.create_subscription(msg.Gate, "command/gate", self._on_gate, qos.LATCHED)
        node.create_subscription(msg.PolicyState, "policy/state", self._on_state, qos.LATCHED)
        node.create_subscription(msg.Executed, "command/executed", self._on_tick, qos.EXECUTED)
        node.create_subscription(msg.ActionChunk, "policy/action_chunk", self._on_chunk, qos.CHUNK)
        node.create_subscription(JointState, action.commands[0].topic, self._on_command, qos.COMMAND)
        node.create_subscription(JointState, TOPICS["state"][1], self._on_joints, qos.input_qos("reliable"))

    @property
    def token(self) -> str:
        """Why the gate is closed, without the explanation; empty: it is open."""
        return str(self.gate.reason).partition(":")[0]

    @property
    def paused(self) -> bool:
        """Whether the gate is closed because command_node stood still: it knew then of the arm what is measured."""
        return not self.gate.open and str(self.gate.reason).startswith(_PAUSED)

    def moves(self, since: float) -> bool:
        """Whether an action ran after a time, and the gate is open."""
        return bool(self.gate.open) and self.moved_at > since

    def held(self) -> bool:
        """Whether the newest command repeats the one before: the arm is told to stay."""
        newest = list(self.commands)[-2:]
        return len(newest) == 2 and np.array_equal(newest[0].positions, newest[1].positions)

    def commanded_since(self, count: int) -> list[Command]:
        """The commands that came after `count` had."""
        return list(self.commands)[len(self.commands) - (self.count - count) :]

    def was_measured(self, positions: NDArray[np.float64]) -> bool:
        """Whether the joints were there a moment ago."""
        return any(np.array_equal(positions, measured) for measured in self.measured)

    def _positions(self, joints: JointState) -> NDArray[np.float64]:
        by_name = dict(zip(joints.name, joints.position, strict=True))
        return np.array([by_name[joint] for joint in self._joints])

    def _on_joints(self, joints: JointState) -> None:
        self.measured.append(self._positions(joints))

    def _on_gate(self, gate: msg.Gate) -> None:
        if gate.epoch < self.gate.epoch:
            self.violations.append(f"the gate's epoch went back from {self.gate.epoch} to {gate.epoch}")
        self.gate = gate

    def _on_state(self, state: msg.PolicyState) -> None:
        if state.epoch < self.state.epoch:
            self.violations.append(f"the policy's epoch went back from {self.state.epoch} to {state.epoch}")
        self.state = state

    def _on_chunk(self, chunk: msg.ActionChunk) -> None:
        self.horizon = chunk.horizon

    def _on_tick(self, tick: msg.Executed) -> None:
        if tick.active:
            self.moved_at = time.monotonic()

    def _on_command(self, command: JointState) -> None:
        self.count += 1
        positions = self._positions(command)
        if not np.isfinite(positions).all():
            self.violations.append(f"commanded {positions.tolist()}")
        elif (positions < self._low - _ROUNDING).any() or (positions > self._high + _ROUNDING).any():
            self.violations.append(f"commanded outside the limits: {positions.tolist()}")
        elif self.commands and (np.abs(positions - self.commands[-1].positions) > self._jump + _ROUNDING).any():
            before = self.commands[-1].positions.tolist()
            self.violations.append(f"commands jumped from {before} to {positions.tolist()}")
        if not self.commands or not np.array_equal(positions, self.commands[-1].positions):
            self.changes += 1
        self.commands.append(Command(time.monotonic(), positions))
