# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from trajectory_msgs.msg import JointTrajectory

from flashrt_ros.node.recorder import Recorder, RecorderSettings
from flashrt_ros.node.recorder_ring import Ring
from flashrt_ros.node.recorder_topics import recorded_topics
from flashrt_ros.policy.contract import load_contract

CONFIG = Path(__file__).resolve().parents[2] / "config"
COUNT = 50
"""Messages of each topic; more than any reader that keeps the newest few would have."""


def test_every_command_topic_is_recorded_with_its_type() -> None:
    kinds = {topic.name: topic.kind for topic in recorded_topics(load_contract(CONFIG / "aloha_contract.yaml"))}
    for side in ("left", "right"):
        assert kinds[f"follower_{side}/arm_controller/joint_trajectory"] is JointTrajectory


def test_the_clock_is_recorded_in_lockstep_alone() -> None:
    for name, recorded in (("demo", True), ("aloha", False)):
        topics = recorded_topics(load_contract(CONFIG / f"{name}_contract.yaml"))
        assert ("/clock" in [topic.name for topic in topics]) == recorded


def test_what_comes_while_the_node_is_busy_is_recorded_whole(
    context: None, tmp_path: Path, wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(Ring, "add", lambda ring, time, topic, raw: heard.append(topic))
    contract = load_contract(CONFIG / "demo_contract.yaml")
    node, executor = Node("policy"), SingleThreadedExecutor()
    executor.add_node(node)
    topics = recorded_topics(contract)
    recorder = Recorder(node, contract, topics, RecorderSettings(30.0, 1 << 20, tmp_path, 1 << 20))
    try:
        for topic in topics:
            publisher = node.create_publisher(topic.kind, topic.name, topic.qos)
            wait_until(publisher.get_subscription_count)
            for _ in range(COUNT):
                publisher.publish(topic.kind())
        wait_until(lambda: executor.spin_once(0.1) or len(heard) == COUNT * len(topics), what=lambda: Counter(heard))
    finally:
        recorder.close(10.0)
        executor.shutdown()
        node.destroy_node()
