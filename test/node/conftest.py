# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Node processes, a node of the test's own, and waiting on conditions."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from node_process import NodeProcess, settings
from waiting import wait

COMMAND_CONTRACT = """
observation:
  images: {front: {topic: image, type: sensor_msgs/msg/Image, qos: reliable, max_age: 0.3}}
  state: {topic: joint_states, type: sensor_msgs/msg/JointState, joints: [a, b], max_age: 0.5}
action:
  joints: [a, b]
  rate: 20.0
  mode: absolute
  limits: {position: {a: [-1.0, 1.0], b: [-1.0, 1.0]}, step: {a: 0.1, b: 0.1}}
  start_tolerance: 0.15
  threshold: 8
  command: {topic: joint_command, type: sensor_msgs/msg/JointState}
  safety: hold
heartbeat_timeout: 0.5
"""

ROOT = Path(__file__).resolve().parents[2]

if importlib.util.find_spec("rclpy") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from rclpy.node import Node
    from spinning import spinning


@pytest.fixture
def wait_until() -> Callable[..., Any]:
    """`wait_until(condition, timeout, what)` returns the condition's first true value, or fails."""
    return wait


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[Callable[..., NodeProcess]]:
    """Start a module as a node: `start_node(module, contract="x.yaml", autostart=True, remap={"a": "b"})`."""
    started: list[NodeProcess] = []

    def start(module: str, remap: dict[str, str] | None = None, **parameters: object) -> NodeProcess:
        remappings = [word for source, target in (remap or {}).items() for word in ("-r", f"{source}:={target}")]
        arguments = ["-m", module, "--ros-args", *settings(parameters), *remappings]
        process = NodeProcess(tmp_path / f"node_{len(started)}.log", *arguments, patience=15.0)
        started.append(process)
        return process

    yield start
    for process in started:
        process.end()


@pytest.fixture
def contract(tmp_path: Path) -> Path:
    """A contract of two joints at 20 Hz, which a test may change."""
    file = tmp_path / "contract.yaml"
    file.write_text(COMMAND_CONTRACT)
    return file


@pytest.fixture
def node(context: None) -> Iterator[Node]:
    """A node of the test's own, spun by a thread."""
    with spinning("test") as own:
        yield own
