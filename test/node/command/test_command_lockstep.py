# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""command_node in lockstep, in a process of its own; the policy and the simulated robot are the test's."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from builtin_interfaces.msg import Duration
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState

from flashrt_interfaces.msg import ActionChunk, Executed, Gate, Heartbeat, PolicyState
from flashrt_ros.node import qos
from flashrt_ros.node.stamps import from_nanoseconds, to_nanoseconds

MODULE = "flashrt_ros.node.command_node"
JOINTS = ["a", "b"]
PERIOD = 50_000_000
HORIZON = 10


@pytest.fixture
def lockstep_contract(contract: Path) -> Path:
    contract.write_text(contract.read_text() + "lockstep: {apply_after: 2}\n")
    return contract


class Lockstep:
    """A robot in lockstep, and a policy that answers its first requests after a while."""

    def __init__(self, node: Any, delay: float, answers: int = 1000) -> None:
        self.node = node
        self.stamp = 0
        self.commands: dict[int, bytes] = {}
        self.position = [0.0, 0.0]
        self.gate = Gate()
        self.beats = True
        self._delay = delay
        self._answers = answers
        self._state = node.create_publisher(PolicyState, "policy/state", qos.LATCHED)
        self._chunk = node.create_publisher(ActionChunk, "policy/action_chunk", qos.CHUNK)
        self._beat = node.create_publisher(Heartbeat, "policy/heartbeat", qos.HEARTBEAT)
        self._joints = node.create_publisher(JointState, "joint_states", 10)
        self._clock = node.create_publisher(Clock, "/clock", 10)
        self._chunks = 0
        self._late: list[tuple[float, ActionChunk]] = []
        self._entities = [
            node.create_subscription(Gate, "command/gate", self._on_gate, qos.LATCHED),
            node.create_subscription(Executed, "command/executed", self._on_executed, qos.EXECUTED),
            node.create_subscription(JointState, "joint_command", self._on_command, qos.COMMAND),
            node.create_timer(0.1, self._pulse),
            node.create_timer(0.25, self.show),
            node.create_timer(0.002, self._answer_late),
        ]

    def leave(self) -> None:
        """Take everything of this world out of the node; in its own thread, which else publishes what is gone."""
        for publisher in (self._state, self._chunk, self._beat, self._joints, self._clock):
            self.node.destroy_publisher(publisher)
        for subscription in self._entities[:3]:
            self.node.destroy_subscription(subscription)
        for timer in self._entities[3:]:
            self.node.destroy_timer(timer)

    def state(self, epoch: int, state: int, step_limit: int = 0) -> None:
        self._state.publish(PolicyState(epoch=epoch, state=state, step_limit=step_limit))

    def show(self) -> None:
        """Show the newest instant, again where it was shown before."""
        if self.stamp:
            joints = JointState(name=JOINTS, position=self.position)
            joints.header.stamp = from_nanoseconds(self.stamp)
            self._joints.publish(joints)
            self._clock.publish(Clock(clock=from_nanoseconds(self.stamp)))

    def _pulse(self) -> None:
        if self.beats:
            self._beat.publish(Heartbeat())

    def begin(self) -> None:
        self.stamp = PERIOD
        self.show()

    def _on_gate(self, gate: Gate) -> None:
        self.gate = gate

    def _on_command(self, command: JointState) -> None:
        if to_nanoseconds(command.header.stamp) != self.stamp:
            return
        self.commands[self.stamp] = command.position.tobytes()
        self.position = list(command.position)
        self.stamp += PERIOD
        self.show()

    def _on_executed(self, tick: Executed) -> None:
        if tick.infer and self._chunks < self._answers:
            self._chunks += 1
            first = self.position[0] if self._chunks == 1 else 0.01 * self._chunks
            chunk = ActionChunk(
                observation_stamp=tick.stamp,
                epoch=tick.epoch,
                chunk_id=self._chunks,
                joint_names=JOINTS[::-1],
                horizon=HORIZON,
                dt=Duration(nanosec=PERIOD),
                data=[value for row in range(HORIZON) for value in (0.0, first + 0.003 * row)],
            )
            self._late.append((time.monotonic() + self._delay * (self._chunks % 3), chunk))

    def _answer_late(self) -> None:
        while self._late and self._late[0][0] <= time.monotonic():
            self._chunk.publish(self._late.pop(0)[1])


def episode(node: Any, start_node: Any, contract: Path, wait_until: Any, delay: float) -> dict[int, bytes]:
    process = start_node(MODULE, contract=contract, autostart=True, world="simulated", use_sim_time=True)
    world = Lockstep(node, delay)
    wait_until(lambda: world.gate.reason == "held", 30.0, "an active node")
    world.begin()
    world.state(1, PolicyState.HELD)
    wait_until(lambda: world.gate.epoch == 1 and len(world.commands) == 1)
    world.state(1, PolicyState.RUNNING, step_limit=40)
    wait_until(lambda: world.gate.reason == "step_limit" and len(world.commands) == 42, timeout=30.0)
    process.signal(signal.SIGINT)
    assert process.wait() == 0
    wait_until(node.executor.create_task(world.leave).done)
    return world.commands


def test_in_lockstep_the_same_chunks_give_the_same_commands_however_late_they_come(
    node: Any, start_node: Any, lockstep_contract: Path, wait_until: Any
) -> None:
    prompt = episode(node, start_node, lockstep_contract, wait_until, delay=0.0)
    slow = episode(node, start_node, lockstep_contract, wait_until, delay=0.03)
    assert len(prompt) == 42
    assert prompt == slow


def test_in_lockstep_a_tick_that_waits_for_a_dead_policy_ends_in_the_safety_action(
    node: Any, start_node: Any, lockstep_contract: Path, wait_until: Any
) -> None:
    start_node(MODULE, contract=lockstep_contract, autostart=True, world="simulated", use_sim_time=True)
    world = Lockstep(node, delay=0.0, answers=1)
    wait_until(lambda: world.gate.reason == "held", 30.0, "an active node")
    world.begin()
    world.state(1, PolicyState.HELD)
    wait_until(lambda: len(world.commands) == 1)
    world.state(1, PolicyState.RUNNING)
    wait_until(lambda: len(world.commands) == 4)  # rows 0 to 2; the chunk asked for at row 1 is due at row 3
    waiting = world.stamp
    world.beats = False
    wait_until(lambda: world.gate.reason.startswith("heartbeat"))
    wait_until(lambda: waiting in world.commands)
    assert world.commands[waiting] == world.commands[waiting - PERIOD]
