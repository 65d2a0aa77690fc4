# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Hears an episode over ROS: what it takes to show it again, and when each thing happened on the wall clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.qos import QoSProfile
from sensor_msgs.msg import JointState
from std_msgs.msg import UInt8MultiArray

from flashrt_ros.demo.robot_messages import targets_of
from flashrt_ros.demo.task import saved_tick
from flashrt_ros.node import qos
from flashrt_ros.node.behaviours import ServiceBehaviour
from flashrt_ros.node.interfaces import msg
from flashrt_ros.node.stamps import to_nanoseconds

_MANY = qos.without_gaps(qos.COMMAND)


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time: seconds on the wall clock, and what the answer says about it."""

    name: str
    begin: float
    end: float
    answer: Any = None


@dataclass(slots=True)
class Heard:
    """What was heard; times are seconds on the wall clock, ticks those of the task.

    Attributes:
        states: state of the task at each tick, for Task.load.
        commands: by tick, joint targets (rad) [joints].
        chunks: by the tick of its observation, joint targets (rad) [horizon, joints].
        command_times: by tick, when the command was sent.
        active: ticks that ran a row of a chunk; at the others the arm was held.
        asked: by tick, when the inference from its observation was asked for.
        answered: by tick, when the chunk from its observation was sent.
        gate: when it opened or closed, and whether it opened.
        verbs: services that were called; the answer is the response.
    """

    states: dict[int, bytes] = field(default_factory=dict)
    commands: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    chunks: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    command_times: dict[int, float] = field(default_factory=dict)
    active: set[int] = field(default_factory=set)
    asked: dict[int, float] = field(default_factory=dict)
    answered: dict[int, float] = field(default_factory=dict)
    gate: list[tuple[float, bool]] = field(default_factory=list)
    verbs: list[Span] = field(default_factory=list)

    def inferences(self) -> list[Span]:
        """Return each inference, from the request to the chunk."""
        both = sorted(self.asked.keys() & self.answered.keys())
        return [Span(f"tick {tick}", self.asked[tick], self.answered[tick]) for tick in both]


class Witness:
    """Listens from `begin` on."""

    def __init__(self, node: Node, period: int) -> None:
        """`period`: ns a tick."""
        self.heard = Heard()
        self._period = period
        self._reset_stamp: int | None = None
        self._ran: tuple[int, int] = (0, 0)
        self._chunk_ids: set[int] = set()
        for kind, topic, callback, profile in self._topics():
            node.create_subscription(kind, topic, callback, profile)

    def _topics(self) -> list[tuple[Any, str, Callable[..., None], QoSProfile]]:
        return [
            (UInt8MultiArray, "robot/world", self._on_state, _MANY),
            (JointState, "joint_command", self._on_command, _MANY),
            (msg.ActionChunk, "policy/action_chunk", self._on_chunk, _MANY),
            (msg.Executed, "command/executed", self._on_executed, _MANY),
            (msg.Gate, "command/gate", self._on_gate, _MANY),
        ]

    def begin(self, stamp: int) -> None:
        """Start at tick 0 of an episode, which the robot shows at `stamp`, ns."""
        self.heard = Heard()
        self._reset_stamp = stamp

    def lacking(self, stamp: int) -> str:
        """Return what has not been heard yet of an arm that rests since `stamp`, ns; empty: nothing."""
        last = self._tick(stamp)
        if last is None:
            return "an episode has not begun"
        states, commands = last in self.heard.states, len(self.heard.commands)
        if not states or commands < last:
            return f"{commands} of {last} commands have been heard"
        if self._tick(self._ran[0]) != last - 1:
            return "command/executed is not up to date"
        if self._ran[1] and self._ran[1] not in self._chunk_ids:
            return f"chunk {self._ran[1]} has not been heard"
        return ""

    def did(self, verb: ServiceBehaviour) -> None:
        """Note a service that has just answered."""
        now = time.time()
        self.heard.verbs.append(Span(verb.name, now - verb.round_trip, now, verb.response))

    def _tick(self, stamp: int) -> int | None:
        """The task's tick at a stamp; None: of something before `begin`."""
        if self._reset_stamp is None or stamp < self._reset_stamp:
            return None
        return round((stamp - self._reset_stamp) / self._period)

    def _on_state(self, message: UInt8MultiArray, info: dict[str, int]) -> None:
        state = bytes(message.data)
        if self._reset_stamp is not None:
            self.heard.states[saved_tick(state)] = state

    def _on_command(self, message: JointState, info: dict[str, int]) -> None:
        tick = self._tick(to_nanoseconds(message.header.stamp))
        if tick is not None:
            self.heard.commands[tick] = targets_of(message)
            self.heard.command_times.setdefault(tick, _sent(info))  # the robot may ask for one again

    def _on_chunk(self, message: Any, info: dict[str, int]) -> None:
        tick = self._tick(to_nanoseconds(message.observation_stamp))
        if tick is None:
            return
        self._chunk_ids.add(message.chunk_id)
        self.heard.chunks[tick] = np.array(message.data).reshape(message.horizon, -1)
        self.heard.answered[tick] = _sent(info)

    def _on_executed(self, message: Any, info: dict[str, int]) -> None:
        chunk_id = message.chunk_id or self._ran[1]  # none once the gate has closed
        self._ran = (to_nanoseconds(message.stamp), chunk_id)
        tick = self._tick(to_nanoseconds(message.stamp))
        if tick is None:
            return
        if message.active:
            self.heard.active.add(tick)
        if message.infer:
            self.heard.asked[tick] = _sent(info)

    def _on_gate(self, message: Any, info: dict[str, int]) -> None:
        if self._reset_stamp is not None:
            self.heard.gate.append((_sent(info), message.open))


def _sent(info: dict[str, int]) -> float:
    """When a message was published, s."""
    return info["source_timestamp"] * 1e-9
