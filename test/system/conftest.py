# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Both nodes in processes of their own, on a wall clock; robot and clients are the test's."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from node_process import NodeProcess, settings
from waiting import wait

ROOT = Path(__file__).resolve().parents[2]
VIEWS = ("front", "wrist")
RATE = 10.0
HEARTBEAT_TIMEOUT = 1.5  # s; longer than a busy machine keeps a node from a processor
MAX_AGE = 1.0  # s, of what is observed; likewise, since whoever is kept from a processor for longer stops the arm
BUDGET_MIB = 24
PATIENCE = 30.0  # s; far beyond what anything here takes

if importlib.util.find_spec("rclpy") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    import yaml
    from diagnostic_msgs.msg import DiagnosticArray
    from goal import Goal
    from rclpy.node import Node
    from sensor_msgs.msg import Image, JointState
    from spinning import spinning

    from flashrt_ros.models.tiny import JOINTS, write_tiny_checkpoint
    from flashrt_ros.node import qos
    from flashrt_ros.node.action_client import ThreadSafeActionClient
    from flashrt_ros.node.interfaces import action, msg, srv
    from flashrt_ros.node.stamps import to_nanoseconds


def until(condition: Callable[[], Any], what: object = "", timeout: float = PATIENCE) -> Any:
    """Return the condition's first true value; fail where none comes in time."""
    return wait(condition, timeout, what)


class Robot:
    """An arm that is where its last command says, and two cameras.

    Attributes:
        shown: the inputs that are published; taking one out withholds it.
        spoil: changes a message before it is published, by input.
        commands: stamp (ns) and positions of each.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.shown = {"state", *VIEWS}
        self.spoil: dict[str, Callable[[Any], None]] = {}
        self.positions = dict.fromkeys(JOINTS, 0.1)
        self.commands: list[tuple[int, dict[str, float]]] = []
        self._states = node.create_publisher(JointState, "joint_states", qos.input_qos("reliable"))
        self._images = {
            view: node.create_publisher(Image, f"camera/{view}/image_raw", qos.input_qos("reliable")) for view in VIEWS
        }
        node.create_subscription(JointState, "joint_command", self._on_command, qos.COMMAND)
        node.create_timer(0.02, self._show_joints)
        node.create_timer(0.04, self._show_images)

    def _on_command(self, command: JointState) -> None:
        self.positions = dict(zip(command.name, command.position, strict=True))
        self.commands.append((to_nanoseconds(command.header.stamp), self.positions))

    def _show_joints(self) -> None:
        self._show("state", self._states, JointState(name=list(self.positions), position=list(self.positions.values())))

    def _show_images(self) -> None:
        for view, publisher in self._images.items():
            pixels = np.full((96, 96, 3), 10 * len(view), np.uint8)
            image = Image(height=96, width=96, step=288, encoding="rgb8", data=array("B", pixels.tobytes()))
            self._show(view, publisher, image)

    def _show(self, key: str, publisher: Any, message: Any) -> None:
        if key in self.shown:
            message.header.stamp = self.node.get_clock().now().to_msg()
            self.spoil.get(key, lambda message: None)(message)
            publisher.publish(message)


class Client:
    """Calls policy_node, and hears what both nodes say."""

    def __init__(self, node: Node) -> None:
        self.gates: list[msg.Gate] = []
        self.ticks: list[msg.Executed] = []
        self.chunks: list[msg.ActionChunk] = []
        self.states: list[msg.PolicyState] = []
        self.messages: dict[str, str] = {}
        """What the newest diagnostics say, by status."""
        self._node = node
        self._services: dict[str, Any] = {}
        self._statuses: dict[str, dict[str, str]] = {}
        self._runs = ThreadSafeActionClient(node, action.RunPolicy, "policy/run_policy")
        self._chunks = node.create_publisher(msg.ActionChunk, "policy/action_chunk", qos.CHUNK)
        node.create_subscription(msg.Gate, "command/gate", self.gates.append, qos.LATCHED)
        node.create_subscription(msg.Executed, "command/executed", self.ticks.append, qos.EXECUTED)
        node.create_subscription(msg.ActionChunk, "policy/action_chunk", self.chunks.append, qos.CHUNK)
        node.create_subscription(msg.PolicyState, "policy/state", self.states.append, qos.LATCHED)
        node.create_subscription(DiagnosticArray, "/diagnostics", self._on_report, qos.DIAGNOSTICS)

    @property
    def gate(self) -> msg.Gate:
        """The newest."""
        return self.gates[-1] if self.gates else msg.Gate()

    @property
    def state(self) -> msg.PolicyState:
        """The newest."""
        return self.states[-1] if self.states else msg.PolicyState()

    def call(self, service: str, /, **fields: Any) -> Any:
        """Call a service of policy_node, by its name, and return the response."""
        client = self._service(service)
        assert client.wait_for_service(PATIENCE), service
        future = client.call_async(client.srv_type.Request(**fields))
        until(future.done, f"the response of {service}")
        return future.result()

    def serves(self) -> bool:
        """Whether an active policy_node answers soon: one that was killed still seems to be there for a while."""
        future = self._service("list_capsules").call_async(srv.ListCapsules.Request())
        deadline = time.monotonic() + 0.5
        while not future.done() and time.monotonic() < deadline:
            time.sleep(0.01)
        return future.done() and future.result().error_code == 0

    def run(self, **fields: Any) -> Goal:
        """Send a goal."""
        return Goal(self._runs, PATIENCE, **fields)

    def move(self, **fields: Any) -> Goal:
        """Send a goal and wait until it moves the arm."""
        gates, ticks = len(self.gates), len(self.ticks)
        run = self.run(**fields)
        until(lambda: run.done() or any(gate.open for gate in self.gates[gates:]), lambda: f"an open gate: {self.gate}")
        until(lambda: run.done() or any(tick.active for tick in self.ticks[ticks:]), "motion")
        assert not run.done(), run.result()
        return run

    def rest(self) -> None:
        """Wait for a tick of the newest epoch: by then all is here that was sent before its gate closed."""
        until(lambda: self.ticks and self.ticks[-1].epoch == self.state.epoch == self.gate.epoch, "a tick at rest")

    def digest(self, name: str) -> str:
        """The sha256 of a new capsule of the live state."""
        assert self.call("snapshot", name=name).error_code == 0

        def listed() -> str:
            return next(each.sha256 for each in self.call("list_capsules").capsules if each.name == name)

        return str(until(listed, f"the digest of {name}"))

    def publish_chunk(self, chunk: msg.ActionChunk) -> None:
        """Publish a chunk as if it came from policy_node."""
        self._chunks.publish(chunk)

    def publish_held(self, state: msg.PolicyState) -> None:
        """Publish a state as if it came from policy_node, until command_node has closed the gate at it."""
        forged = self._node.create_publisher(msg.PolicyState, "policy/state", qos.LATCHED)

        def followed() -> bool:
            forged.publish(state)  # again and again: one that policy_node publishes meanwhile takes its place
            return not self.gate.open

        until(followed, "the closed gate")
        self._node.destroy_publisher(forged)

    def dropped(self) -> int:
        """How many chunks of another epoch command_node has dropped, by a report that it made in the newest one."""
        until(lambda: self.figure("command: gate", "epoch") == str(self.state.epoch), "a report")
        return int(self.figure("command: execution", "dropped, another epoch") or 0)

    def figure(self, status: str, key: str) -> str:
        """A value of the newest diagnostics; empty: not there."""
        return self._statuses.get(status, {}).get(key, "")

    def _service(self, name: str) -> Any:
        if name not in self._services:
            kind = getattr(srv, "".join(word.title() for word in name.split("_")))
            self._services[name] = self._node.create_client(kind, f"policy/{name}")
        return self._services[name]

    def _on_report(self, report: DiagnosticArray) -> None:
        for status in report.status:
            self.messages[status.name] = status.message
            self._statuses[status.name] = {pair.key: pair.value for pair in status.values}


class Nodes:
    """policy_node and command_node, and what to start them with."""

    def __init__(self, folder: Path, client: Client, contract: Path, checkpoint: Path) -> None:
        shared = {"autostart": "true", "contract": contract}
        self._client = client
        self._folder = folder
        self._parameters: dict[str, dict[str, object]] = {
            "command_node": shared,
            "policy_node": {
                **shared,
                "checkpoint": checkpoint,
                "capsule_folder": folder / "capsules",
                "capsule_budget": BUDGET_MIB,
                "capsule_folder_limit": BUDGET_MIB,
                "gate_timeout": 5.0,
                "observation_timeout": 2.0,
            },
        }
        self.started: dict[str, NodeProcess] = {}

    def start(self, module: str) -> NodeProcess:
        """Start a node, again where it was started before."""
        arguments = ["-m", f"flashrt_ros.node.{module}", "--ros-args", *settings(self._parameters[module])]
        self.started[module] = NodeProcess(self._folder / f"{module}.log", *arguments)
        return self.started[module]

    def start_both(self) -> None:
        """Start both and wait until policy_node serves and command_node follows it."""
        command, policy = self.start("command_node"), self.start("policy_node")
        self.until_served(policy)
        assert command.process.poll() is None, command.output

    def until_served(self, policy: NodeProcess) -> None:
        """Wait until a policy_node that was started is active and the gate of its epoch is closed."""

        def answers() -> bool:
            assert policy.process.poll() is None, policy.output
            return self._client.serves()

        until(answers, lambda: policy.output)
        until(lambda: self._client.gate.epoch == self._client.state.epoch, "the gate to follow")

    def end(self) -> None:
        """End what still lives, so that its peers see it leave."""
        for started in self.started.values():
            started.end_well(PATIENCE)


@pytest.fixture(scope="session", name="until")
def until_fixture() -> Callable[..., Any]:
    """`until(condition, what, timeout)` returns the condition's first true value, or fails."""
    return until


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy whose inference takes longer than a control period, in many short stages."""
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint"))
    config = folder / "config.json"
    values = json.loads(config.read_text())
    values["framework"]["action_model"]["num_inference_timesteps"] = 32
    config.write_text(json.dumps(values))
    return folder


@pytest.fixture(scope="session")
def contract(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's, paced by a timer."""
    values = yaml.safe_load((ROOT / "config" / "demo_contract.yaml").read_text())
    del values["lockstep"]
    values["action"] |= {"rate": RATE, "threshold": 10}
    values["heartbeat_timeout"] = HEARTBEAT_TIMEOUT
    observed = values["observation"]
    for source in (observed["state"], *observed["images"].values()):
        source["max_age"] = MAX_AGE
    path = tmp_path_factory.mktemp("contract") / "contract.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.fixture
def heartbeat_timeout() -> float:
    """Of the contract, in s."""
    return HEARTBEAT_TIMEOUT


@pytest.fixture
def max_age() -> float:
    """Of what is observed, in s."""
    return MAX_AGE


@pytest.fixture(scope="module")
def spun(context: None) -> Iterator[Node]:
    """A node of the test's own, spun by a thread."""
    with spinning("test") as node:
        yield node


@pytest.fixture(scope="module")
def robot(spun: Node) -> Robot:
    return Robot(spun)


@pytest.fixture(scope="module")
def client(spun: Node) -> Client:
    return Client(spun)


@pytest.fixture(scope="module")
def start_nodes(
    client: Client, robot: Robot, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path], contextlib.AbstractContextManager[Nodes]]:
    """`with start_nodes(contract)`: both nodes, active."""

    @contextlib.contextmanager
    def start(contract: Path) -> Iterator[Nodes]:
        started = Nodes(tmp_path_factory.mktemp("nodes"), client, contract, checkpoint)
        try:
            started.start_both()
            yield started
        finally:
            started.end()

    return start


@pytest.fixture(scope="module")
def nodes(start_nodes: Callable[..., contextlib.AbstractContextManager[Nodes]], contract: Path) -> Iterator[Nodes]:
    """Both nodes; the tests of a module share them."""
    with start_nodes(contract) as started:
        yield started
