# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A dry run of command_node with each shipped contract, beside a robot that tells its joints as its drivers do."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builtin_interfaces.msg import Duration
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from flashrt_interfaces.msg import ActionChunk, Executed, Gate, Heartbeat, PolicyState
from flashrt_ros.node import qos
from flashrt_ros.node.stamps import from_nanoseconds, to_nanoseconds
from flashrt_ros.policy.contract import load_contract

CONFIG = Path(__file__).resolve().parents[3] / "config"
MODULE = "flashrt_ros.node.command_node"
HORIZON = 50
ARM = ["waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate"]
SO101 = ["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"]
FR3 = [f"fr3_joint{number}" for number in range(1, 8)]
FR3_AT = [0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785]
ALOHA_AT = [0.0, -0.96, 1.16, 0.0, -0.3, 0.0]
FINGERS = {"gripper": 1.0, "left_finger": 0.05, "right_finger": -0.05}
# Joint states by topic, in another order than the contract's and with joints that it does not name.
ROBOTS: dict[str, dict[str, dict[str, float]]] = {
    "aloha": {
        f"follower_{side}/joint_states": FINGERS | dict(zip(ARM[::-1], ALOHA_AT[::-1], strict=True))
        for side in ("left", "right")
    },
    "franka": {"franka/joint_states": {"other_joint": 9.0} | dict(zip(FR3[::-1], FR3_AT[::-1], strict=True))},
    "so101": {"joint_states": {"other": 9.0} | dict.fromkeys(SO101[::-1], 0.1)},
}
# The names of each command's message, in order; None: it has none, and its controller has this order.
COMMANDS: dict[str, dict[str, tuple[type, list[str]]]] = {
    "aloha": {
        f"follower_{side}/{controller}/joint_trajectory": (JointTrajectory, joints)
        for side in ("left", "right")
        for controller, joints in {"arm_controller": ARM, "gripper_controller": ["left_finger"]}.items()
    },
    "franka": {"fr3_arm_controller/joint_trajectory": (JointTrajectory, FR3)},
    "so101": {"forward_position_controller/commands": (Float64MultiArray, SO101)},
}


def rows_of(message: Any) -> list[list[float]]:
    if isinstance(message, Float64MultiArray):
        return [list(message.data)]
    return [list(point.positions) for point in message.points]


@pytest.mark.parametrize("robot", ROBOTS)
def test_commands_are_what_the_robots_controllers_take_and_stay_within_limits(
    robot: str, node: Any, start_node: Any, wait_until: Any
) -> None:
    contract = load_contract(CONFIG / f"{robot}_contract.yaml")
    action, limits = contract.action, contract.action.limits
    chunks = node.create_publisher(ActionChunk, "policy/action_chunk", qos.CHUNK)
    states = node.create_publisher(PolicyState, "policy/state", qos.LATCHED)
    beat = node.create_publisher(Heartbeat, "policy/heartbeat", qos.HEARTBEAT)
    joints = {topic: node.create_publisher(JointState, topic, 10) for topic in ROBOTS[robot]}
    gates: list[Gate] = []
    ids = itertools.count(1)
    sent: dict[str, list[Any]] = {topic: [] for topic in COMMANDS[robot]}
    starts = {
        name: measured[shown]
        for source in contract.observation.sources_of(action.joints)
        for measured in [ROBOTS[robot][source.topic]]
        for name, shown in zip(source.names, source.joints, strict=True)
    }

    def measure() -> None:
        beat.publish(Heartbeat())
        for topic, publisher in joints.items():
            state = JointState(name=list(ROBOTS[robot][topic]), position=list(ROBOTS[robot][topic].values()))
            state.header.stamp = node.get_clock().now().to_msg()
            publisher.publish(state)

    def answer(tick: Executed) -> None:
        """Stay where the robot is for some rows, then go far beyond every limit, each joint another way."""
        if tick.infer:
            chunk = ActionChunk(epoch=1, chunk_id=next(ids), joint_names=list(action.joints), horizon=HORIZON)
            chunk.observation_stamp = from_nanoseconds(to_nanoseconds(tick.stamp))
            chunk.dt = Duration(nanosec=action.period)
            ways = np.where(np.arange(len(action.joints)) % 2, -1.0, 1.0)
            first = np.array([starts[joint] for joint in action.joints])
            far = np.maximum(np.arange(HORIZON) - 20 * (not tick.steps), 0)
            chunk.data = (first + far[:, None] * ways).ravel().tolist()
            chunks.publish(chunk)

    node.create_subscription(Executed, "command/executed", answer, qos.EXECUTED)
    node.create_subscription(Gate, "command/gate", gates.append, qos.LATCHED)
    shadow = "command/dry_run_command"
    for topic, (kind, _) in COMMANDS[robot].items():
        where = f"{shadow}/{topic}" if len(sent) > 1 else shadow
        node.create_subscription(kind, where, partial(list.append, sent[topic]), qos.COMMAND)
    node.create_timer(0.02, measure)
    process = start_node(MODULE, contract=contract.file, autostart=True, dry_run=True)
    wait_until(lambda: gates and gates[-1].reason == "held", 30.0, "an active node")
    states.publish(PolicyState(epoch=1, state=PolicyState.HELD))
    wait_until(lambda: gates[-1].epoch == 1, what="the echo of epoch 1")
    states.publish(PolicyState(epoch=1, state=PolicyState.RUNNING))
    wait_until(lambda: all(len(messages) > 40 for messages in sent.values()), what="commands")
    assert gates[-1].open, gates[-1].reason
    low = dict(zip(action.joints, limits.low, strict=True))
    high = dict(zip(action.joints, limits.high, strict=True))
    step = dict(zip(action.joints, limits.step, strict=True))
    for command in action.commands:
        kind, names = COMMANDS[robot][command.topic]
        assert list(command.named(command.joints)) == names
        before = [[starts[joint] for joint in command.joints]]
        for message in sent[command.topic]:
            assert type(message) is kind
            assert getattr(message, "joint_names", names) == names
            path = [*before, *rows_of(message)]
            for joint, values in zip(command.joints, zip(*path, strict=True), strict=True):
                assert max(values[1:]) <= high[joint] + 1e-9
                assert min(values[1:]) >= low[joint] - 1e-9
                assert np.abs(np.diff(values)).max() <= step[joint] + 1e-9
            before = path[1:2]
        moved = np.array(rows_of(sent[command.topic][-1])[0]) - [starts[joint] for joint in command.joints]
        assert (np.abs(moved) > 0.01).all() or "gripper" in command.topic
    assert process.process.poll() is None
