# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What comes over topics becomes one observation, whatever its types, and nothing of another time does."""

from __future__ import annotations

import io
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from geometry_msgs.msg import Point, Pose, PoseStamped, Vector3, Wrench, WrenchStamped
from PIL import Image as Picture
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CompressedImage, Image, JointState
from std_msgs.msg import Float64MultiArray, String

from flashrt_ros.node import observer as module
from flashrt_ros.node.observer import Observer, UnreadableError
from flashrt_ros.node.stamps import from_nanoseconds
from flashrt_ros.policy.contract import load_contract
from flashrt_ros.runtime.errors import FlashrtError

CONTRACT = """
observation:
  images:
    front: {topic: front, type: sensor_msgs/msg/Image, qos: reliable, max_age: 5.0}
    wrist: {topic: wrist, type: sensor_msgs/msg/CompressedImage, qos: reliable, max_age: 5.0, stamp: receive}
    depth: {topic: depth, type: sensor_msgs/msg/Image, qos: reliable, max_age: 5.0, encoding: 16UC1,
            depth_range: [0.0, 2.0]}
  state:
    - {topic: joints, type: sensor_msgs/msg/JointState, joints: [a, b], max_age: 5.0, convert: {b: {scale: -1.0}}}
    - {topic: joints, type: sensor_msgs/msg/JointState, joints: [b], field: velocity, max_age: 5.0}
    - {topic: hand, type: std_msgs/msg/Float64MultiArray, joints: [thumb, index], max_age: 5.0}
    - {topic: pose, type: geometry_msgs/msg/PoseStamped, fields: {height: position.z}, max_age: 5.0}
    - {topic: bare_pose, type: geometry_msgs/msg/Pose, fields: {side: position.y}, max_age: 5.0}
    - {topic: push, type: geometry_msgs/msg/WrenchStamped, fields: {push: force.x}, max_age: 5.0}
    - {topic: turn, type: geometry_msgs/msg/Wrench, fields: {turn: torque.z}, max_age: 5.0}
  text: {topic: task, type: std_msgs/msg/String}
action:
  joints: [a]
  rate: 10.0
  mode: absolute
  limits: {position: {a: [-1.0, 1.0]}, step: {a: 0.1}}
  start_tolerance: 0.15
  threshold: 3
  command: {topic: joint_command, type: sensor_msgs/msg/JointState}
  safety: hold
heartbeat_timeout: 0.5
"""
NAMES = ("turn", "push", "side", "height", "index", "thumb", "b.velocity", "b", "a")
SECOND = 1_000_000_000
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)


def png() -> array:
    stream = io.BytesIO()
    Picture.fromarray(PIXELS).save(stream, "PNG")
    return array("B", stream.getvalue())


class Robot:
    """Publishes one instant of everything that the contract observes."""

    def __init__(self, node: Node) -> None:
        kinds = {
            "front": Image,
            "wrist": CompressedImage,
            "depth": Image,
            "joints": JointState,
            "hand": Float64MultiArray,
            "pose": PoseStamped,
            "bare_pose": Pose,
            "push": WrenchStamped,
            "turn": Wrench,
        }
        self.publishers = {topic: node.create_publisher(kind, topic, 10) for topic, kind in kinds.items()}
        self.task = node.create_publisher(String, "task", 10)
        self.clock = node.create_publisher(Clock, "/clock", 10)
        padded = np.pad(PIXELS[:, :, ::-1].reshape(6, -1), ((0, 0), (0, 5)))
        millimetres = np.full((6, 8), 1000, "<u2")
        self.messages: dict[str, Any] = {
            "front": Image(height=6, width=8, encoding="bgr8", step=29, data=array("B", padded.tobytes())),
            "wrist": CompressedImage(format="rgb8; png compressed", data=png()),
            "depth": Image(height=6, width=8, encoding="16UC1", step=16, data=array("B", millimetres.tobytes())),
            "joints": JointState(name=["x", "b", "a"], position=[9.0, 0.2, 0.1], velocity=[9.0, 0.5, 9.0]),
            "hand": Float64MultiArray(data=[0.3, 0.4]),
            "pose": PoseStamped(pose=Pose(position=Point(z=0.6))),
            "bare_pose": Pose(position=Point(y=0.7)),
            "push": WrenchStamped(wrench=Wrench(force=Vector3(x=0.8))),
            "turn": Wrench(torque=Vector3(z=0.9)),
        }

    def show(self, stamp: int, **changed: Any) -> None:
        for topic, message in (self.messages | changed).items():
            if hasattr(message, "header"):
                message.header.stamp = from_nanoseconds(stamp)
            self.publishers[topic].publish(message)


class Rig:
    """Observer and robot, each in a node of its own, spun by the test."""

    def __init__(self, contract: Path, *, use_sim_time: bool) -> None:
        overrides = [Parameter("use_sim_time", value=use_sim_time)]
        self.node = Node("observer", parameter_overrides=overrides)
        other = Node("observed_robot")
        self.robot = Robot(other)
        self.kept: list[tuple[str, int]] = []
        self.updates = 0
        self.observer = Observer(
            self.node,
            load_contract(contract),
            NAMES,
            self._count,
            lambda topic, raw, stamp: self.kept.append((topic, stamp)),
        )
        self.executor = SingleThreadedExecutor()
        self.nodes = [self.node, other]
        for node in self.nodes:
            self.executor.add_node(node)
        wanted = [self.robot.task, *self.robot.publishers.values(), *([self.robot.clock] if use_sim_time else [])]
        self.until(lambda: all(publisher.get_subscription_count() for publisher in wanted), "the topics to match")

    def _count(self) -> None:
        self.updates += 1

    def until(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + 20.0
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            self.executor.spin_once(timeout_sec=0.05)

    def show(self, stamp: int, **changed: Any) -> None:
        """Show an instant and wait until all of it has come."""
        wanted = self.updates + 10  # the joints are two inputs
        self.robot.show(stamp, **changed)
        self.until(lambda: self.updates >= wanted, "an instant")

    def set_clock(self, now: int) -> None:
        self.robot.clock.publish(Clock(clock=from_nanoseconds(now)))
        self.until(lambda: self.now() == now, "the clock")

    def now(self) -> int:
        return int(self.node.get_clock().now().nanoseconds)

    def close(self) -> None:
        self.observer.destroy()
        for node in self.nodes:
            self.executor.remove_node(node)
            node.destroy_node()


@pytest.fixture
def start(context: None, tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    rigs = []

    def make(use_sim_time: bool = False) -> Rig:
        file = tmp_path / "contract.yaml"
        file.write_text(CONTRACT)
        rigs.append(Rig(file, use_sim_time=use_sim_time))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


def test_every_type_becomes_part_of_one_observation(start: Callable[..., Rig]) -> None:
    rig = start()
    stamp = rig.now()
    rig.show(stamp)
    found = rig.observer.assemble(rig.observer.newest(stamp - 1))
    assert found.state.tolist() == [0.9, 0.8, 0.7, 0.6, 0.4, 0.3, 0.5, -0.2, 0.1]
    assert (found.images["front"] == PIXELS).all()
    assert (found.images["wrist"] == PIXELS).all()
    assert (found.images["depth"] == 128).all()
    assert found.stamp == stamp
    received = {key for key, at in found.stamps.items() if at > stamp}
    assert received == {"wrist", "state[2]", "state[4]", "state[6]"}
    assert rig.observer.measured == tuple(found.state)
    assert sorted(topic for topic, _ in rig.kept) == sorted(f"/{topic}" for topic in rig.robot.messages)


def test_one_bad_message_is_named_and_the_others_stay(start: Callable[..., Rig]) -> None:
    rig = start()
    rig.show(rig.now())
    rig.observer.buffer.clear()
    rig.show(rig.now(), joints=JointState(name=["x", "a"], position=[9.0, 0.1], velocity=[9.0, 9.0]))
    with pytest.raises(FlashrtError) as lacking:
        rig.observer.newest(0)
    assert str(lacking.value) == (
        "state[0] (joints): joint 'b' is missing; the message names x, a; "
        "state[1] (joints): joint 'b' is missing; the message names x, a"
    )


def test_an_image_that_breaks_off_is_told_when_it_is_decoded(start: Callable[..., Rig]) -> None:
    rig = start()
    data = png()
    rig.show(rig.now(), wrist=CompressedImage(format="png", data=data[: len(data) // 2]))
    parts = rig.observer.newest(0)
    with pytest.raises(UnreadableError, match="wrist: its PNG data cannot be decoded") as raised:
        rig.observer.assemble(parts)
    assert (raised.value.key, raised.value.stamp) == ("wrist", parts["wrist"][0])


def test_a_message_that_is_too_large_is_refused_unread(
    start: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "size_limit", lambda kind: 100 if kind.endswith("JointState") else 1 << 20)
    rig = start()
    names = [f"joint_{number}" for number in range(20)]
    rig.show(rig.now(), joints=JointState(name=names, position=[0.0] * 20))
    assert "bytes; 100 at most are taken" in rig.observer.buffer.parts["state[0]"].refusal
    assert "/joints" not in [topic for topic, _ in rig.kept]


def test_the_newest_text_is_kept_unless_it_is_too_long(start: Callable[..., Rig]) -> None:
    rig = start()
    assert rig.observer.text == ""
    for text in ("lift the cup", "x" * 8193, "put it down"):
        rig.robot.task.publish(String(data=text))
    seen: list[str] = []
    rig.until(lambda: seen.append(rig.observer.text) or seen[-1] == "put it down", "the newest text")
    assert set(seen) <= {"", "lift the cup", "put it down"}


@pytest.mark.parametrize("jump", [-10, 10])
def test_a_clock_that_jumps_leaves_nothing_of_the_other_time(start: Callable[..., Rig], jump: int) -> None:
    rig = start(use_sim_time=True)
    rig.set_clock(100 * SECOND)
    rig.show(100 * SECOND)
    rig.observer.newest(0)
    now = (100 + jump) * SECOND
    rig.set_clock(now)
    assert rig.observer.clock_jumps >= 1
    with pytest.raises(FlashrtError, match=r"front \(front\): nothing has come"):
        rig.observer.newest(0)
    rig.show(now)
    assert rig.observer.assemble(rig.observer.newest(0)).stamps == dict.fromkeys(rig.observer.buffer.parts, now)
