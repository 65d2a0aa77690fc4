# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""policy_node in a process of its own, and in the test's process what stands on the other side of its topics."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]
JOINTS = ["shoulder_pan", "shoulder_lift", "elbow", "wrist_pitch", "wrist_roll", "gripper"]
PERIOD = 100_000_000
THRESHOLD = 4

if importlib.util.find_spec("rclpy") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    import rclpy
    from diagnostic_msgs.msg import DiagnosticArray
    from lifecycle_msgs.srv import ChangeState, GetState
    from rclpy.action import ActionClient
    from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
    from rclpy.node import Node
    from sensor_msgs.msg import Image, JointState

    from flashrt_ros.models.tiny import write_tiny_checkpoint
    from flashrt_ros.node import qos
    from flashrt_ros.node.interfaces import action, msg, srv
    from flashrt_ros.node.stamps import from_nanoseconds

_NUMBERS = itertools.count()


def wait(condition: Callable[[], Any], timeout: float = 20.0, what: object = "") -> Any:
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout} s in vain for {what() if callable(what) else what or condition}")
        time.sleep(0.001)


class Arm:
    """Robot and command_node in one: echoes the gate, shows an instant at each tick, executes chunks.

    With `auto` it goes on by itself while the policy runs: one row a tick, as fast as chunks come.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.states: list[msg.PolicyState] = []
        self.chunks: list[msg.ActionChunk] = []
        self.beats = 0
        self.stamp = 1_000 * PERIOD
        self.positions = dict.fromkeys(JOINTS, 0.1)
        self.encoding = "rgb8"
        self.absent: set[str] = set()
        self.frozen: dict[str, int] = {}
        """Stamps (ns) of the views whose camera gives all images the same."""
        self.auto = self.echo = True
        self.dry_run = False
        self.epoch = self.steps = self.cursor = 0
        self.running = self.open = self.asked = False
        self.closed_at = 0
        self.closings: dict[int, int] = {}
        self.rows = self.cursor = 0
        self.chunk_id = self.step_limit = 0
        self.ran = -1
        self._lock = threading.RLock()
        self._gate = node.create_publisher(msg.Gate, "command/gate", qos.LATCHED)
        self._executed = node.create_publisher(msg.Executed, "command/executed", qos.EXECUTED)
        self._beat = node.create_publisher(msg.Heartbeat, "command/heartbeat", qos.HEARTBEAT)
        self._joints = node.create_publisher(JointState, "joint_states", 10)
        self._views: dict[str, Any] = {}
        self.find_cameras(("front", "wrist"))
        node.create_subscription(msg.PolicyState, "policy/state", self._on_state, qos.LATCHED)
        node.create_subscription(msg.ActionChunk, "policy/action_chunk", self._on_chunk, qos.CHUNK)
        node.create_subscription(msg.Heartbeat, "policy/heartbeat", self._on_beat, qos.HEARTBEAT)
        self.heartbeat = node.create_timer(0.1, lambda: self._beat.publish(msg.Heartbeat()))
        node.create_timer(0.2, self._repeat)
        self.close("inactive")

    def find_cameras(self, order: tuple[str, ...]) -> None:
        """Let the cameras come, and their images, one after the other."""
        for publisher in self._views.values():
            self.node.destroy_publisher(publisher)
        self._views = {view: self.node.create_publisher(Image, f"camera/{view}/image_raw", 10) for view in order}

    def close(self, reason: str, enabled: bool = True) -> None:
        """Close the gate and say why."""
        self.running = self.open = self.asked = False
        self.closed_at = self.stamp
        self.closings.setdefault(self.epoch, self.stamp)
        self.rows = self.cursor = 0
        self.say(reason, enabled)

    def say(self, reason: str, enabled: bool = True) -> None:
        self._gate.publish(
            msg.Gate(
                epoch=self.epoch,
                open=self.open,
                dry_run=self.dry_run,
                enabled=enabled,
                closed_at=from_nanoseconds(self.closed_at),
                reason=reason,
            )
        )

    def tick(self, infer: bool = False) -> None:
        """Show the next instant and report it."""
        with self._lock:
            self.stamp += PERIOD
            active = self.rows > self.cursor
            self.cursor += active
            self.steps += active
            self.show(self.stamp)
            self.asked |= infer
            self.report(self.stamp, active, infer)

    def show(self, stamp: int) -> None:
        """Publish joints and images."""
        if "state" not in self.absent:
            message = JointState(name=list(self.positions), position=list(self.positions.values()))
            message.header.stamp = from_nanoseconds(stamp)
            self._joints.publish(message)
        channels = {"rgb8": 3, "16UC1": 2}[self.encoding]
        for view, publisher in self._views.items():
            if view in self.absent:
                continue
            random = np.random.default_rng([stamp // PERIOD, *view.encode()])
            image = Image(height=96, width=96, encoding=self.encoding, step=96 * channels)
            image.data = array("B", random.integers(0, 255, 96 * 96 * channels, np.uint8).tobytes())
            image.header.stamp = from_nanoseconds(self.frozen.get(view, stamp))
            publisher.publish(image)

    def report(self, stamp: int, active: bool, infer: bool) -> None:
        self._executed.publish(
            msg.Executed(
                stamp=from_nanoseconds(stamp),
                epoch=self.epoch,
                active=active,
                chunk_id=self.chunk_id if self.rows else 0,
                cursor=self.cursor,
                remaining=self.rows - self.cursor,
                steps=self.steps,
                infer=infer,
            )
        )

    def catch_up(self) -> None:
        """Follow the newest state; for one that was told not to."""
        self.echo = True
        self._on_state(self.states[-1])

    def newest_chunk(self, after: int = 0) -> msg.ActionChunk:
        """Wait for a chunk behind the first `after` ones."""
        return wait(lambda: len(self.chunks) > after and self.chunks[-1], what="a chunk")

    def _on_state(self, state: msg.PolicyState) -> None:
        with self._lock:
            self.states.append(state)
            if state.epoch < self.epoch or not self.echo:
                return
            raised = state.epoch > self.epoch
            self.epoch = state.epoch
            if raised:
                self.steps = 0
            if state.state == msg.PolicyState.HELD:
                if raised or self.running:
                    self.close(f"held: {state.reason}")
            elif self.ran < self.epoch:  # an epoch runs once
                self.running, self.ran, self.step_limit = True, self.epoch, state.step_limit
                self.say("waiting: for the first chunk")
                if self.auto:
                    self.tick(infer=True)

    def take(self, chunk: msg.ActionChunk) -> None:
        """Execute a chunk from now on."""
        self.rows, self.cursor, self.chunk_id, self.asked = chunk.horizon, chunk.start, chunk.chunk_id, False
        if not self.open:
            self.open = True
            self.say("")

    def _on_chunk(self, chunk: msg.ActionChunk) -> None:
        with self._lock:
            self.chunks.append(chunk)
            if self.auto and self.running and chunk.epoch == self.epoch:
                self.take(chunk)
                self._advance()

    def _advance(self) -> None:
        while self.rows > self.cursor:
            left = self.rows - self.cursor - 1
            self.tick(infer=left <= THRESHOLD and not self.asked)
            if 0 < self.step_limit <= self.steps:
                self.close("step_limit")

    def _repeat(self) -> None:
        """Show the instant again that is waited for: one who joined late has missed it."""
        with self._lock:
            if self.auto and self.running and self.asked:
                self.show(self.stamp)

    def _on_beat(self, beat: msg.Heartbeat) -> None:
        self.beats += 1


class Run:
    """A goal of a client."""

    def __init__(self, client: ActionClient, goal: Any) -> None:
        self.feedback: list[Any] = []
        sent = client.send_goal_async(goal, feedback_callback=lambda message: self.feedback.append(message.feedback))
        wait(sent.done, what="the goal's acceptance")
        self.handle = sent.result()
        self._answer = self.handle.get_result_async()

    def answer(self, timeout: float = 20.0) -> Any:
        wait(self._answer.done, timeout, "the goal's result")
        return self._answer.result()

    def result(self, timeout: float = 20.0) -> Any:
        return self.answer(timeout).result

    def done(self) -> bool:
        return self._answer.done()

    def cancel(self) -> None:
        wait(self.handle.cancel_goal_async().done, what="the answer to cancel")


_LIFECYCLE = {"change_state": ChangeState, "get_state": GetState}


class Client:
    """Calls everything that policy_node offers."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._services: dict[str, Any] = {}
        self._action = ActionClient(node, action.RunPolicy, "policy/run_policy")
        self.diagnostics: dict[str, Any] = {}
        node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)

    def send(self, service: str, /, **fields: Any) -> Any:
        """Call a service (its name in snake case) and return the future."""
        kind = _LIFECYCLE.get(service) or getattr(srv, "".join(word.title() for word in service.split("_")))
        if service not in self._services:
            self._services[service] = self._node.create_client(kind, f"policy/{service}")
        client = self._services[service]
        assert client.wait_for_service(60.0), service
        return client.call_async(kind.Request(**fields))

    def call(self, service: str, /, timeout: float = 20.0, **fields: Any) -> Any:
        """Call a service, again and again under one request id: a node that was killed is still there for a while."""
        if service not in _LIFECYCLE:
            fields.setdefault("request_id", f"call.{next(_NUMBERS)}")
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            future = self.send(service, **fields)
            until = min(deadline, time.monotonic() + 3.0) if service != "change_state" else deadline
            while time.monotonic() < until:
                if future.done():
                    return future.result()
                time.sleep(0.0005)
        return pytest.fail(f"waited {timeout} s in vain for the response of {service}")

    def answer(self, future: Any, timeout: float = 20.0) -> Any:
        wait(future.done, timeout, "the response of a service")
        return future.result()

    def transition(self, label: str, timeout: float = 30.0) -> bool:
        request = ChangeState.Request()
        request.transition.label = label
        return bool(self.call("change_state", timeout, transition=request.transition).success)

    def state(self) -> str:
        return str(self.call("get_state").current_state.label)

    def run(self, **fields: Any) -> Run:
        assert self._action.wait_for_server(60.0)
        return Run(self._action, action.RunPolicy.Goal(**fields))

    def capsule(self, name: str) -> Any:
        """What the list says of a capsule."""
        return next(capsule for capsule in self.call("list_capsules").capsules if capsule.name == name)

    def digest(self, name: str) -> str:
        """The digest of a capsule's state."""
        return wait(lambda: str(self.capsule(name).sha256), what=f"the digest of {name}")

    def live_digest(self) -> str:
        """The digest of the live state."""
        name = f"live.{next(_NUMBERS)}"
        assert self.call("snapshot", name=name).error_code == 0
        digest = self.digest(name)
        self.call("drop_capsule", name=name)
        return digest

    def _on_diagnostics(self, report: DiagnosticArray) -> None:
        for status in report.status:
            self.diagnostics[status.name.removeprefix("policy: ")] = status


class Process:
    """A policy_node."""

    def __init__(self, log: Path, code: str = "", **parameters: object) -> None:
        """`code` runs instead of the module; it is to call its `main`."""
        self._log = log
        settings = [word for name, value in parameters.items() for word in ("-p", f"{name}:={_text(value)}")]
        start = ["-m", "flashrt_ros.node.policy_node"] if not code else ["-c", code]
        command = [sys.executable, *start, "--ros-args", *settings]
        with log.open("ab") as file:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def says(self, text: str, timeout: float = 40.0, after: int = 0) -> None:
        """Wait until it has printed a text behind its first `after` characters."""
        wait(
            lambda: text in self.output[after:] or self.process.poll() is not None,
            timeout,
            lambda: f"{text!r} in {self.output[after:]}",
        )
        assert text in self.output[after:], self.output

    def end(self) -> None:
        """End it, so that its peers see it leave."""
        self.process.terminate()
        try:
            self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="session")
def slow_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that takes a second or so to act, in many short stages."""
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("slow"))
    values = json.loads((folder / "config.json").read_text())
    values["framework"]["action_model"]["num_inference_timesteps"] = 400
    (folder / "config.json").write_text(json.dumps(values))
    return folder


@pytest.fixture(scope="session")
def contract(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's contract: lockstep."""
    return ROOT / "config" / "demo_contract.yaml"


@pytest.fixture(scope="session")
def timed_contract(contract: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same on a wall clock."""
    path = tmp_path_factory.mktemp("contract") / "timed.yaml"
    path.write_text("\n".join(line for line in contract.read_text().splitlines() if not line.startswith("lockstep")))
    return path


@pytest.fixture(scope="module")
def spun(context: None) -> Iterator[Node]:
    """A node of a module's own, spun by a thread; later modules must not hear its arm."""
    node = rclpy.create_node("peer")
    executor = SingleThreadedExecutor()
    executor.add_node(node)

    def spin() -> None:
        with contextlib.suppress(ExternalShutdownException):
            executor.spin()

    thread = threading.Thread(target=spin, daemon=True)
    thread.start()
    yield node
    executor.shutdown()
    thread.join(5.0)
    node.destroy_node()


@pytest.fixture(scope="module")
def one_arm(spun: Node) -> Arm:
    return Arm(spun)


@pytest.fixture
def arm(one_arm: Arm) -> Iterator[Arm]:
    """The arm, with nothing of an earlier test's faults."""
    one_arm.auto = one_arm.echo = True
    one_arm.absent, one_arm.encoding, one_arm.dry_run = set(), "rgb8", False
    one_arm.frozen.clear()
    one_arm.positions = dict.fromkeys(JOINTS, 0.1)
    one_arm.chunks.clear()
    one_arm.states[:-1] = []
    yield one_arm
    one_arm.auto = False


@pytest.fixture(scope="module")
def client(spun: Node) -> Client:
    return Client(spun)


@pytest.fixture
def start_policy(tmp_path: Path, contract: Path, checkpoint: Path) -> Iterator[Callable[..., Process]]:
    """Start a policy_node of the test's own; without other words it is the shared one's twin."""
    started: list[Process] = []

    def start(**parameters: object) -> Process:
        defaults = {"checkpoint": checkpoint, "contract": contract, "capsule_folder": tmp_path / "capsules"}
        process = Process(tmp_path / "policy.log", **{**defaults, **parameters})
        started.append(process)
        return process

    yield start
    for process in started:
        process.end()


@pytest.fixture(scope="module")
def policy(
    one_arm: Arm, client: Client, checkpoint: Path, contract: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Process]:
    """An active policy_node that the tests of a module share. Each begins with a goal or a verb of its own."""
    folder = tmp_path_factory.mktemp("policy")
    process = Process(
        folder / "log",
        checkpoint=checkpoint,
        contract=contract,
        capsule_folder=folder / "capsules",
        autostart=True,
        world="simulated",
        observation_timeout=2.0,
    )
    try:
        wait(lambda: process.process.poll() is not None or client.state() == "active", 40.0, lambda: process.output)
        assert process.process.poll() is None, process.output
        yield process
    finally:
        process.end()


@pytest.fixture(scope="module")
def unconfigured(spun: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A policy_node that the tests of a module share and configure."""
    folder = tmp_path_factory.mktemp("policy")
    process = Process(folder / "log", capsule_folder=folder / "capsules")
    yield process
    process.end()


@pytest.fixture
def wait_for() -> Callable[..., Any]:
    """`wait_for(condition, timeout, what)` returns the first true value, or fails."""
    return wait
