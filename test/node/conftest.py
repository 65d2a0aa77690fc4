# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Node processes, a node of the test's own, and waiting on conditions."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
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
  threshold: 5
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


class NodeProcess:
    """A node of this package in a process of its own."""

    def __init__(self, module: str, arguments: list[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments], cwd=ROOT, stdout=file, stderr=subprocess.STDOUT
            )

    @property
    def output(self) -> str:
        """Everything that it printed."""
        return self._log.read_text(errors="replace")

    def signal(self, number: int) -> None:
        """Send a signal to this process alone."""
        self.process.send_signal(number)

    def wait(self, timeout: float = 10.0) -> int:
        """Return the exit code."""
        return self.process.wait(timeout)

    def says(self, text: str, timeout: float = 15.0) -> None:
        """Wait until it has printed a text."""
        wait(lambda: text in self.output or self.process.poll() is not None, timeout, f"'{text}'")
        assert text in self.output, self.output

    def end(self) -> None:
        """End it where it still lives, so that its peers see it leave."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def wait_until() -> Callable[..., Any]:
    """`wait_until(condition, timeout, what)` returns the condition's first true value, or fails."""
    return wait


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[Callable[..., NodeProcess]]:
    """Start a module as a node: `start_node(module, contract="x.yaml", autostart=True, remap={"a": "b"})`."""
    started: list[NodeProcess] = []

    def start(module: str, remap: dict[str, str] | None = None, **parameters: object) -> NodeProcess:
        arguments = ["--ros-args"]
        for name, value in parameters.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            arguments += ["-p", f"{name}:={text}"]
        for source, target in (remap or {}).items():
            arguments += ["-r", f"{source}:={target}"]
        process = NodeProcess(module, arguments, tmp_path / f"node_{len(started)}.log")
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
