# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A node dies while the arm moves, and is started again as launch would."""

from __future__ import annotations

import signal
import time
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("flashrt_interfaces")

from flashrt_interfaces.msg import PolicyState
from flashrt_ros.node.stamps import to_nanoseconds
from flashrt_ros.runtime.errors import ErrorCode

SLACK = 0.5  # s, of a busy machine


def capsule(client: Any, name: str) -> Any:
    """A capsule as it is listed."""
    return next(each for each in client.call("list_capsules").capsules if each.name == name)


def number(boundary: str) -> int:
    """How many boundaries of its lineage came before one."""
    return int(boundary.rpartition("-")[2])


def held_after(client: Any, robot: Any, until: Any, closed_at: int) -> None:
    """The safety action alone follows a closed gate: the last command once more."""
    ticks = len(client.ticks)
    until(lambda: len(client.ticks) > ticks + 3, "some ticks")
    sent = [positions for stamp, positions in robot.commands if stamp >= closed_at]
    assert sent == [robot.commands[-2][1]]


def test_a_killed_policy_node_leaves_a_held_arm_and_comes_back_at_its_newest_durable_boundary(
    nodes: Any, client: Any, robot: Any, heartbeat_timeout: float, until: Any
) -> None:
    client.move(instruction="press the button that lit up", seed=5)
    saved = client.call("snapshot", name="kept")
    assert saved.error_code == ErrorCode.NONE
    until(lambda: capsule(client, "kept").durable and client.state.durable_boundary, "a durable boundary")
    digest = until(lambda: capsule(client, "kept").sha256, "its digest")
    until(lambda: client.gate.open and client.ticks[-1].active, "motion")
    durable, epoch = client.state.durable_boundary, client.gate.epoch
    killed = time.time()
    nodes.started["policy_node"].kill()
    until(lambda: client.gate.reason.startswith("heartbeat"), lambda: f"a closed gate, not {client.gate}")
    closed_at = to_nanoseconds(client.gate.closed_at)
    assert closed_at * 1e-9 - killed <= heartbeat_timeout + SLACK
    held_after(client, robot, until, closed_at)

    commands, states = len(robot.commands), len(client.states)
    nodes.until_served(nodes.start("policy_node"))
    until(lambda: client.state.reason == "restored at the start", lambda: client.state)
    assert client.state.state == PolicyState.HELD
    assert all(state.epoch > epoch for state in client.states[states:])
    until(lambda: client.gate.epoch == client.state.epoch, "the gate to follow")
    assert client.state.boundary == client.state.durable_boundary
    assert number(client.state.boundary) >= max(number(durable), number(saved.boundary))
    assert until(lambda: capsule(client, "kept").sha256, "its digest") == digest
    assert capsule(client, "kept").instruction == client.state.instruction == "press the button that lit up"
    assert len(robot.commands) == commands
    client.move()
    until(
        lambda: client.figure("command: topics", "/policy/heartbeat, liveliness lost") == "1", "a report of the death"
    )
    assert all(before.epoch <= after.epoch for before, after in pairwise(client.states))
    assert all(before.epoch <= after.epoch for before, after in pairwise(client.gates))


def test_a_killed_command_node_ends_the_goal_and_its_successor_runs_the_next_one(
    nodes: Any, client: Any, robot: Any, until: Any
) -> None:
    run = client.move(instruction="press the button that lit up")
    epoch = client.state.epoch
    nodes.started["command_node"].kill()
    result = run.result()
    assert result.error_code == ErrorCode.GATE_TIMEOUT, result
    nodes.start("command_node")
    until(lambda: client.gate.epoch > epoch and not client.gate.open, "the gate of the new command_node")
    client.move()
    assert all(before.epoch <= after.epoch for before, after in pairwise(client.states))


def test_a_stopped_policy_node_leaves_a_held_arm_and_nothing_old_runs_when_it_goes_on(
    nodes: Any, client: Any, robot: Any, heartbeat_timeout: float, until: Any
) -> None:
    run = client.move(instruction="press the button that lit up")
    policy = nodes.started["policy_node"].process
    policy.send_signal(signal.SIGSTOP)
    try:
        stopped = time.time()
        until(lambda: client.gate.reason.startswith("heartbeat"), lambda: f"a closed gate, not {client.gate}")
        closed_at = to_nanoseconds(client.gate.closed_at)
        assert closed_at * 1e-9 - stopped <= heartbeat_timeout + SLACK
        held_after(client, robot, until, closed_at)
        commands = len(robot.commands)
    finally:
        policy.send_signal(signal.SIGCONT)
    assert run.result().error_code == ErrorCode.GATE_TIMEOUT
    ticks = len(client.ticks)
    until(lambda: len(client.ticks) > ticks + 3, "some ticks")
    assert len(robot.commands) == commands
    client.move()
