# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The simulated robot in a process of its own, and a node that watches and commands it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rclpy
from diagnostic_msgs.msg import DiagnosticStatus
from rcl_interfaces.srv import SetParametersAtomically
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import UInt8MultiArray
from std_srvs.srv import Trigger

from flashrt_ros.demo.render import VIEWS
from flashrt_ros.demo.world import JOINTS
from flashrt_ros.node import qos
from flashrt_ros.node.stamps import from_nanoseconds, to_nanoseconds

PATIENCE = 20.0  # s; far beyond what anything here takes


class RobotProcess:
    """`demo_robot` with the given parameters."""

    def __init__(self, log: Path, parameters: dict[str, object]) -> None:
        self._log = log
        settings = [word for name, value in parameters.items() for word in ("-p", f"{name}:={value}")]
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flashrt_ros.demo.robot_node", "--ros-args", *settings],
                stdout=stream,
                stderr=stream,
                cwd=Path(__file__).parents[2],
            )

    def log(self) -> str:
        return self._log.read_text()

    def wait_for_log(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while text not in self.log():
            assert time.monotonic() < deadline, f"no {text!r} in: {self.log()}"
            time.sleep(0.02)

    def exit_code(self) -> int:
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        """End it well: one that is killed is still there for those who look for the robot of the next test."""
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()


class Observer:
    """Collects the robot's messages by stamp (ns), and commands it."""

    def __init__(self) -> None:
        self.node = rclpy.create_node("observer")
        self.executor = SingleThreadedExecutor()
        self.executor.add_node(self.node)
        self.states: dict[int, JointState] = {}
        self.parts: dict[int, dict[str, bytes]] = {}
        self.clocks: list[int] = []
        self.node.create_subscription(JointState, "joint_states", self._on_state, 100)
        for view in VIEWS:
            self.node.create_subscription(Image, f"camera/{view}/image_raw", self._on_image(view), 100)
        self.node.create_subscription(
            Clock, "/clock", lambda clock: self.clocks.append(to_nanoseconds(clock.clock)), 100
        )
        self.episodes: list[DiagnosticStatus] = []
        self.worlds: list[bytes] = []
        self.node.create_subscription(DiagnosticStatus, "robot/episode", self.episodes.append, qos.LATCHED)
        self.node.create_subscription(
            UInt8MultiArray, "robot/world", lambda state: self.worlds.append(bytes(state.data)), 100
        )
        self.commands = self.node.create_publisher(JointState, "joint_command", 100)

    def _on_clock(self, clock: Clock) -> None:
        self.clocks.append(to_nanoseconds(clock.clock))

    def _on_state(self, state: JointState) -> None:
        stamp = to_nanoseconds(state.header.stamp)
        self.states[stamp] = state
        self.parts.setdefault(stamp, {})["state"] = b"".join(
            array.tobytes() for array in (state.position, state.velocity)
        )

    def _on_image(self, view: str) -> Callable[[Image], None]:
        def keep(image: Image) -> None:
            assert (image.encoding, image.header.frame_id) == ("rgb8", f"camera_{view}")
            assert len(image.data) == image.height * image.step == image.height * image.width * 3
            self.parts.setdefault(to_nanoseconds(image.header.stamp), {})[view] = bytes(image.data)

        return keep

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            self.executor.spin_once(timeout_sec=0.05)

    def tick(self, stamp: int) -> dict[str, bytes]:
        """Wait until a tick has been seen whole."""
        self.until(lambda: len(self.parts.get(stamp, {})) == 1 + len(VIEWS) and stamp in self.clocks, f"tick {stamp}")
        return self.parts[stamp]

    def first_tick(self) -> int:
        self.until(lambda: bool(self.clocks), "a tick")
        self.tick(self.clocks[0])
        self.until_heard()
        return self.clocks[0]

    def until_heard(self) -> None:
        """Wait until commands reach the robot."""
        self.until(lambda: self.commands.get_subscription_count() > 0, "the robot's subscription")

    def command(self, stamp: int, positions: list[float], names: tuple[str, ...] = JOINTS) -> None:
        message = JointState(name=list(names), position=positions)
        message.header.stamp = from_nanoseconds(stamp)
        self.commands.publish(message)

    def call(self, service: str) -> Trigger.Response:
        return self._call(Trigger, service, Trigger.Request())

    def set_parameters(self, **values: object) -> None:
        parameters = [Parameter(name, value=value).to_parameter_msg() for name, value in values.items()]
        request = SetParametersAtomically.Request(parameters=parameters)
        result = self._call(SetParametersAtomically, "set_parameters_atomically", request).result
        assert result.successful, result.reason

    def _call(self, kind: type, service: str, request: object) -> Any:
        client = self.node.create_client(kind, f"robot/{service}")
        assert client.wait_for_service(PATIENCE)
        future = client.call_async(request)
        self.until(future.done, service)
        self.node.destroy_client(client)
        return future.result()

    def close(self) -> None:
        self.executor.shutdown()
        self.node.destroy_node()


@pytest.fixture
def start_robot(tmp_path: Path) -> Iterator[Callable[..., RobotProcess]]:
    started: list[RobotProcess] = []

    def start(**parameters: object) -> RobotProcess:
        started.append(RobotProcess(tmp_path / f"robot{len(started)}.log", parameters))
        return started[-1]

    yield start
    for robot in started:
        robot.close()


@pytest.fixture
def make_observer(context: None) -> Iterator[Callable[[], Observer]]:
    made: list[Observer] = []

    def make() -> Observer:
        made.append(Observer())
        return made[-1]

    yield make
    for observer in made:
        observer.close()


@pytest.fixture
def observer(make_observer: Callable[[], Observer]) -> Observer:
    return make_observer()


class Dark:
    """A renderer that shows nothing."""

    name = "dark"
    why = ""

    def render(self, view: str) -> np.ndarray:
        return np.zeros((96, 96, 3), np.uint8)

    def close(self) -> None:
        pass


@pytest.fixture
def dark() -> Dark:
    return Dark()
