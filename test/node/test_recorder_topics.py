# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

from trajectory_msgs.msg import JointTrajectory

from flashrt_ros.node.recorder_topics import recorded_topics
from flashrt_ros.policy.contract import load_contract

CONFIG = Path(__file__).resolve().parents[2] / "config"


def test_every_command_topic_is_recorded_with_its_type() -> None:
    kinds = {topic.name: topic.kind for topic in recorded_topics(load_contract(CONFIG / "aloha_contract.yaml"))}
    for side in ("left", "right"):
        assert kinds[f"follower_{side}/arm_controller/joint_trajectory"] is JointTrajectory


def test_the_clock_is_recorded_in_lockstep_alone() -> None:
    for name, recorded in (("demo", True), ("aloha", False)):
        topics = recorded_topics(load_contract(CONFIG / f"{name}_contract.yaml"))
        assert ("/clock" in [topic.name for topic in topics]) == recorded
