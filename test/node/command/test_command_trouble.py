# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What goes wrong around command_node, over real topics: late chunks, rivals, absurd joints, holds that last."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.msg import Transition
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import JointState

from flashrt_ros.node import qos
from flashrt_ros.node.stamps import to_nanoseconds

PERIOD = 50_000_000
HORIZON = 13


def figure(status: DiagnosticStatus, key: str) -> str:
    return next((pair.value for pair in status.values if pair.key == key), "")


def test_a_late_chunk_is_held_for_and_reported_and_the_arm_goes_on_without_a_jump(
    moving: Any, world: Any, wait_until: Any
) -> None:
    world.answers = False
    wait_until(lambda: figure(world.status("execution"), "late chunks") == "1", what="a report")
    assert world.status("execution").level == DiagnosticStatus.WARN
    assert world.status("queue").level == DiagnosticStatus.WARN
    assert world.gate.open
    moving.says("chunks that came late, or not yet: 1; meanwhile the arm is held")
    held = [positions for _, positions in world.commands[-2:]]
    assert held[0] == held[1]
    count = len(world.commands)
    world.answers = True
    wait_until(lambda: len(world.commands) > count + HORIZON)
    assert abs(world.commands[count][1][0] - held[0][0]) <= 0.002
    wait_until(lambda: world.status("execution").level == DiagnosticStatus.OK)
    assert float(figure(world.status("queue"), "latency p99, ms")) < 1000.0


def test_a_second_publisher_closes_the_gate_and_is_named_and_its_end_lets_the_next_run_move(
    moving: Any, world: Any, wait_until: Any
) -> None:
    rival = world.node.create_publisher(JointState, "joint_command", qos.COMMAND)
    wait_until(lambda: world.gate.reason.startswith("publisher: '/test'"))
    wait_until(lambda: world.status("gate").level == DiagnosticStatus.ERROR)
    world.run(2)
    wait_until(lambda: world.gate.epoch == 2 and world.reason() == "publisher")
    count, ticks = len(world.commands), len(world.ticks)
    wait_until(lambda: len(world.ticks) > ticks + 3)
    assert len(world.commands) == count
    world.node.destroy_publisher(rival)
    wait_until(lambda: figure(world.status("gate"), "other publishers") == "none")
    world.run(3)
    wait_until(lambda: world.gate.open)


def test_a_second_publisher_that_was_there_before_keeps_the_gate_closed(
    start: Any, world: Any, wait_until: Any
) -> None:
    rival = world.node.create_publisher(JointState, "joint_command", qos.COMMAND)
    start()
    wait_until(lambda: figure(world.status("gate"), "other publishers") == "'/test'")
    world.run(1)
    wait_until(lambda: world.reason() == "publisher")
    assert world.commands == []
    world.node.destroy_publisher(rival)


def test_the_enable_input_closes_the_gate_within_a_tick_and_a_new_epoch_must_arm_it(
    moving: Any, world: Any, wait_until: Any
) -> None:
    world.enable(False)
    pressed = world.now()
    wait_until(lambda: not world.gate.open)
    closed_at = to_nanoseconds(world.gate.closed_at)
    world.run(1)
    world.run(2)
    wait_until(lambda: world.gate.epoch == 2)
    world.enable(True)
    wait_until(lambda: world.gate.enabled)
    ticks = len(world.ticks)
    wait_until(lambda: len(world.ticks) > ticks + 5)
    assert world.ticks_between(pressed, closed_at) <= 1
    assert len([stamp for stamp, _ in world.commands if stamp >= closed_at]) == 1
    world.run(3)
    wait_until(lambda: world.gate.open)


def test_joints_that_cannot_be_where_they_are_measured_close_the_gate(moving: Any, world: Any, wait_until: Any) -> None:
    world.shown = [57.3, 0.0]
    wait_until(lambda: world.reason() == "joints")
    assert "'a' is measured at 57.3" in world.gate.reason


def test_a_hold_that_lasts_too_long_is_an_error_and_deactivates(
    start: Any, world: Any, contract: Path, change: Any, wait_until: Any
) -> None:
    groups = "{groups: [{joints: [a, b], action: hold, timeout: 0.4}]}"
    contract.write_text(contract.read_text().replace("safety: hold", f"safety: {groups}"))
    process = start()
    world.run(1)
    wait_until(lambda: world.gate.open)
    world.answers = False
    wait_until(lambda: world.reason() == "inactive")
    assert "a hold lasted longer than 0.4 s: no chunk came" in world.gate.reason
    wait_until(lambda: world.status("gate").level == DiagnosticStatus.ERROR)
    assert "lasted longer" in world.status("gate").message
    ticks = len(world.ticks)
    world.answers = True
    process.says("gate closed at epoch 1: inactive: a hold lasted longer")
    assert len(world.ticks) == ticks
    assert change(Transition.TRANSITION_ACTIVATE)
    world.run(2)
    wait_until(lambda: world.gate.open)


def test_released_joints_get_no_command_on_trouble(start: Any, world: Any, contract: Path, wait_until: Any) -> None:
    groups = "{groups: [{joints: [a], action: hold}, {joints: [b], action: release}]}"
    contract.write_text(contract.read_text().replace("safety: hold", f"safety: {groups}"))
    start()
    named: list[list[str]] = []
    world.node.create_subscription(JointState, "joint_command", lambda command: named.append(command.name), 10)
    world.run(1)
    wait_until(lambda: world.gate.open and len(named) > 3)
    assert set(map(tuple, named)) == {("a", "b")}
    world.hold(2)
    wait_until(lambda: named[-1] == ["a"])


def test_joints_with_command_topics_of_their_own_move_and_stop_together_and_each_has_one_publisher(
    start: Any, world: Any, contract: Path, wait_until: Any
) -> None:
    one = "{topic: joint_command, type: sensor_msgs/msg/JointState}"
    assert one in contract.read_text()
    kind = "type: sensor_msgs/msg/JointState"
    both = f"[{{topic: left/command, {kind}, joints: [b]}}, {{topic: right/command, {kind}, joints: [a]}}]"
    contract.write_text(contract.read_text().replace(one, both))
    sent: dict[str, list[JointState]] = {"left": [], "right": []}
    for side, messages in sent.items():
        world.node.create_subscription(JointState, f"{side}/command", messages.append, qos.COMMAND)
    world.first = lambda: 0.0
    start()
    world.run(1)
    wait_until(lambda: min(map(len, sent.values())) > 3)
    assert {tuple(message.name) for message in sent["left"]} == {("b",)}
    assert {tuple(message.name) for message in sent["right"]} == {("a",)}
    world.hold(2)
    wait_until(lambda: not world.gate.open)
    ticks = len(world.ticks)
    wait_until(lambda: len(world.ticks) > ticks + 3)
    heard = min(map(len, sent.values()))  # by both: the node may find one subscription before the other
    stamps = [[to_nanoseconds(message.header.stamp) for message in messages[-heard:]] for messages in sent.values()]
    assert stamps[0] == stamps[1]
    assert all(messages[-1].position == messages[-2].position for messages in sent.values())
    rival = world.node.create_publisher(JointState, "left/command", qos.COMMAND)
    wait_until(lambda: figure(world.status("gate"), "other publishers") == "'/test'")
    world.node.destroy_publisher(rival)


def test_a_dry_run_of_several_commands_has_a_shadow_topic_of_each(
    start: Any, world: Any, contract: Path, wait_until: Any
) -> None:
    one = "{topic: joint_command, type: sensor_msgs/msg/JointState}"
    several = "[{topic: /left/command, type: sensor_msgs/msg/JointState, joints: [b]}, "
    several += "{topic: joint_command, type: sensor_msgs/msg/JointState, joints: [a]}]"
    contract.write_text(contract.read_text().replace(one, several))
    shadows: list[str] = []
    for topic in ("left/command", "joint_command"):
        world.node.create_subscription(
            JointState,
            f"command/dry_run_command/{topic}",
            lambda message: shadows.append(message.name[0]),
            qos.COMMAND,
        )
    start(dry_run=True)
    world.run(1)
    wait_until(lambda: set(shadows) == {"a", "b"})
    assert world.commands == []


def test_a_publisher_whose_qos_does_not_fit_is_named_by_its_topic(moving: Any, world: Any, wait_until: Any) -> None:
    best_effort = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
    wrong = world.node.create_publisher(JointState, "joint_states", best_effort)
    seen: list[str] = []

    def told() -> bool:
        status = world.status("topics")
        if status.level == DiagnosticStatus.WARN:
            seen.append(status.message)
        return any("/joint_states: incompatible QoS (RELIABILITY)" in message for message in seen)

    wait_until(told, what="the report")
    assert figure(world.status("topics"), "/joint_states, incompatible QoS") == "1"
    world.node.destroy_publisher(wrong)
    wait_until(lambda: world.status("topics").level == DiagnosticStatus.OK)


def test_a_publisher_that_leaves_is_named_by_its_topic(moving: Any, world: Any, wait_until: Any) -> None:
    world.moves = False
    # In the thread that publishes, which else may be about to.
    world.node.executor.create_task(world.node.destroy_publisher, world.joints)
    wait_until(lambda: figure(world.status("topics"), "/joint_states, publisher gone") == "1")


def test_a_policy_that_falls_silent_misses_its_deadline_by_topic(moving: Any, world: Any, wait_until: Any) -> None:
    world.beats = False
    wait_until(lambda: int(figure(world.status("topics"), "/policy/heartbeat, deadline missed") or 0) > 0)


@pytest.mark.parametrize(("timeout", "warns"), [(0.0, True), (0.2, False)])
def test_activation_warns_where_nothing_stops_the_robot_if_the_process_dies(
    start: Any, world: Any, contract: Path, timeout: float, warns: bool
) -> None:
    contract.write_text(contract.read_text() + f"controller_timeout: {timeout}\n")
    process = start()
    process.says("gate closed at epoch 1")
    assert ("controller_timeout is 0" in process.output) == warns


def test_simulated_time_that_leaps_ahead_closes_the_gate_and_the_node_survives(
    start: Any, world: Any, wait_until: Any
) -> None:
    world.simulate_time(1000 * 1_000_000_000)
    start(use_sim_time=True)
    world.run(1)
    wait_until(lambda: world.gate.open)
    world.simulated += 100 * 1_000_000_000
    wait_until(lambda: world.reason() == "time")
    world.run(2)
    began = time.monotonic()
    wait_until(lambda: world.gate.open)
    ticks = len(world.ticks)
    wait_until(lambda: len(world.ticks) > ticks + 10)
    assert time.monotonic() - began < 5.0  # no burst of ticks that were missed, and no wait for them
