# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""command_node is killed or stopped while the arm moves: its controller stops the arm, and nothing old runs later."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectory

from flashrt_ros.node import qos

PERIOD = 0.05
CONTROLLER_TIMEOUT = 0.3
SLACK = 0.15  # s, of a busy machine


class Controller:
    """Goes on as fast as its last two commands until none has come for a while: the worst that one may do."""

    def __init__(self, node: Any) -> None:
        self.moved_at = 0.0
        self._commanded_at = time.monotonic()
        self._target: float | None = None
        self._speed = 0.0
        node.create_subscription(JointState, "joint_command", self._on_command, qos.COMMAND)
        node.create_timer(0.005, self._move)

    def _on_command(self, command: JointState) -> None:
        target = command.position[0]
        self._speed = 0.0 if self._target is None else (target - self._target) / PERIOD
        self._target, self._commanded_at = target, time.monotonic()

    @property
    def moves(self) -> bool:
        """Whether it moved a moment ago."""
        return time.monotonic() - self.moved_at < 0.1

    def _move(self) -> None:
        now = time.monotonic()
        if self._speed and now - self._commanded_at <= CONTROLLER_TIMEOUT:
            self.moved_at = now


@pytest.fixture
def controller(node: Any) -> Controller:
    return Controller(node)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_controller_stops_within_its_timeout_and_nothing_old_runs_when_the_node_goes_on(
    controller: Controller, start: Any, world: Any, wait_until: Any, number: signal.Signals
) -> None:
    process = start()
    world.run(1)
    wait_until(lambda: len(world.commands) > 5 and controller.moves)
    process.signal(number)
    struck, count = time.monotonic(), len(world.commands)
    wait_until(lambda: not controller.moves, CONTROLLER_TIMEOUT + 1.0)
    assert controller.moved_at - struck <= CONTROLLER_TIMEOUT + SLACK
    assert len(world.commands) <= count + 1  # one that was on its way
    if number == signal.SIGSTOP:
        sagged = world.position = [position - 0.01 for position in world.position]
        wait_until(lambda: time.monotonic() - struck > 0.7)  # longer than the joints' max_age; the policy is alive
        count = len(world.commands)
        process.signal(signal.SIGCONT)
        wait_until(lambda: not world.gate.open)
        ticks = len(world.ticks)
        wait_until(lambda: len(world.ticks) > ticks + 3)
        after = [positions for _, positions in world.commands[count:]]
        assert after in ([], [sagged])  # the safety action
        world.run(2)
        wait_until(lambda: world.gate.open)


def test_a_stop_that_simulated_time_knows_nothing_of_closes_the_gate_and_a_pause_of_that_time_does_not(
    start: Any, world: Any, contract: Path, wait_until: Any
) -> None:
    contract.write_text(contract.read_text().replace("heartbeat_timeout: 0.5", "heartbeat_timeout: 5.0"))
    world.simulate_time(1000 * 1_000_000_000)
    process = start(use_sim_time=True)
    world.run(1)
    wait_until(lambda: len(world.commands) > 5)
    world.clock_runs = False
    begun = time.monotonic()
    wait_until(lambda: time.monotonic() - begun > 1.0)
    count = len(world.commands)
    world.clock_runs = True
    wait_until(lambda: len(world.commands) > count + 3)
    world.clock_runs = False
    process.signal(signal.SIGSTOP)
    begun = time.monotonic()
    wait_until(lambda: time.monotonic() - begun > 1.0)
    count = len(world.commands)
    world.clock_runs = True
    process.signal(signal.SIGCONT)
    wait_until(lambda: not world.gate.open)
    assert world.gate.reason.startswith("time: stopped for 1.")
    ticks = len(world.ticks)
    wait_until(lambda: len(world.ticks) > ticks + 3)
    assert len(world.commands) == count


def test_what_is_handed_over_is_bounded_and_a_hold_takes_its_place(
    start: Any, world: Any, contract: Path, wait_until: Any
) -> None:
    kind = "trajectory_msgs/msg/JointTrajectory"
    contract.write_text(
        contract.read_text().replace(
            "{topic: joint_command, type: sensor_msgs/msg/JointState}",
            f"{{topic: joint_trajectory, type: {kind}, handover: trajectory, max_handover: 0.25}}",
        )
    )
    trajectories: list[JointTrajectory] = []

    def follow(trajectory: JointTrajectory) -> None:
        world.position = list(trajectory.points[0].positions)
        trajectories.append(trajectory)

    world.node.create_subscription(JointTrajectory, "joint_trajectory", follow, qos.COMMAND)
    process = start()
    world.run(1)
    wait_until(lambda: len(trajectories) > 5)
    process.signal(signal.SIGSTOP)
    last = trajectories[-1]
    times = [point.time_from_start.sec + point.time_from_start.nanosec * 1e-9 for point in last.points]
    assert times == pytest.approx([0.05, 0.1, 0.15, 0.2, 0.25][: len(times)])
    assert max(len(trajectory.points) for trajectory in trajectories) == 5
    places = [point.positions[0] for point in last.points]
    assert places == pytest.approx([places[0] + 0.001 * index for index in range(len(places))])
    process.signal(signal.SIGCONT)
    world.hold(2)
    wait_until(lambda: len(trajectories[-1].points) == 1 and not world.gate.open)
