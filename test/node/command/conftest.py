# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""command_node in a process of its own; the policy and the robot are the test's."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import wait

MODULE = "flashrt_ros.node.command_node"
JOINTS = ["a", "b"]
PERIOD = 50_000_000
HORIZON = 13

if importlib.util.find_spec("rclpy") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from builtin_interfaces.msg import Duration
    from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
    from lifecycle_msgs.msg import Transition
    from lifecycle_msgs.srv import ChangeState
    from rosgraph_msgs.msg import Clock
    from sensor_msgs.msg import JointState
    from std_msgs.msg import Bool

    from flashrt_interfaces.msg import ActionChunk, Executed, Gate, Heartbeat, PolicyState
    from flashrt_ros.node import qos
    from flashrt_ros.node.stamps import from_nanoseconds, to_nanoseconds


class World:
    """A policy that answers every request, and a robot that is where its last command says."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.gates: list[Gate] = []
        self.ticks: list[Executed] = []
        self.commands: list[tuple[int, list[float]]] = []
        """(stamp in ns, positions)"""
        self.dry: list[Any] = []
        self.statuses: dict[str, DiagnosticStatus] = {}
        self.simulated = 0
        """The time of a simulated clock, ns; 0: there is none."""
        self.answers = True
        self.beats = True
        self.moves = True
        self.first: Callable[[], float] = lambda: self.position[0]
        self.position = [0.0, 0.0]
        self.shown: list[float] | None = None
        """Where the joints say they are; None: at `position`."""
        self.epoch = 0
        self.chunk_id = 0
        self.period = PERIOD
        self._state = node.create_publisher(PolicyState, "policy/state", qos.LATCHED)
        self._chunk = node.create_publisher(ActionChunk, "policy/action_chunk", qos.CHUNK)
        self._beat = node.create_publisher(Heartbeat, "policy/heartbeat", qos.HEARTBEAT)
        self.joints = node.create_publisher(JointState, "joint_states", 10)
        self._enable = node.create_publisher(Bool, "command/enable", qos.ENABLE)
        self._entities = [
            node.create_subscription(Gate, "command/gate", self.gates.append, qos.LATCHED),
            node.create_subscription(Executed, "command/executed", self._on_executed, qos.EXECUTED),
            node.create_subscription(JointState, "joint_command", self._on_command, qos.COMMAND),
            node.create_subscription(JointState, "command/dry_run_command", self.dry.append, qos.COMMAND),
            node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, qos.DIAGNOSTICS),
            node.create_timer(0.02, self._measure),
            node.create_timer(0.1, self._pulse),
        ]

    def now(self) -> int:
        return self.simulated or int(self.node.get_clock().now().nanoseconds)

    def simulate_time(self, start: int) -> None:
        """Publish a clock that begins at `start` ns and runs at half the speed of this machine's."""
        self.simulated = start
        self.clock_runs = True
        clock = self.node.create_publisher(Clock, "/clock", qos.CLOCK)

        def advance() -> None:
            self.simulated += 5_000_000 * self.clock_runs
            clock.publish(Clock(clock=from_nanoseconds(self.simulated)))

        self._entities.append(self.node.create_timer(0.01, advance))

    def state(self, epoch: int, state: int, step_limit: int = 0) -> None:
        self.epoch = epoch
        self._state.publish(PolicyState(epoch=epoch, state=state, step_limit=step_limit, reason="test"))

    def hold(self, epoch: int) -> None:
        self.state(epoch, PolicyState.HELD)

    def run(self, epoch: int, step_limit: int = 0) -> None:
        self.state(epoch, PolicyState.RUNNING, step_limit)

    def chunk(self, epoch: int, observation: int, first: float) -> None:
        """Publish a chunk that moves joint a by 0.001 a row."""
        self.chunk_id += 1
        data = [value for row in range(HORIZON) for value in (first + 0.001 * row, 0.0)]
        self._chunk.publish(
            ActionChunk(
                observation_stamp=from_nanoseconds(observation),
                epoch=epoch,
                chunk_id=self.chunk_id,
                joint_names=JOINTS,
                horizon=HORIZON,
                dt=Duration(nanosec=self.period),
                data=data,
            )
        )

    def enable(self, enabled: bool) -> None:
        wait(self._enable.get_subscription_count, what="a subscription of command/enable")
        self._enable.publish(Bool(data=enabled))

    @property
    def gate(self) -> Gate:
        """The newest gate."""
        return self.gates[-1] if self.gates else Gate()

    def ticks_between(self, begin: int, end: int) -> int:
        """How many ticks behind one time and up to another, in ns; a process that stood still made none meanwhile."""
        return sum(begin < to_nanoseconds(tick.stamp) <= end for tick in self.ticks)

    def reason(self) -> str:
        return str(self.gate.reason.partition(":")[0])

    def _on_executed(self, tick: Executed) -> None:
        self.ticks.append(tick)
        if tick.infer and self.answers and tick.epoch == self.epoch:
            self.chunk(tick.epoch, self.now(), self.first())

    def _on_command(self, command: JointState) -> None:
        self.commands.append((to_nanoseconds(command.header.stamp), list(command.position)))
        self.position = list(command.position)

    def status(self, name: str) -> DiagnosticStatus:
        """The newest status of command_node under a name."""
        return self.statuses.get(f"command: {name}", DiagnosticStatus())

    def _on_diagnostics(self, report: DiagnosticArray) -> None:
        self.statuses |= {status.name: status for status in report.status}

    def _measure(self) -> None:
        if self.moves:
            state = JointState(name=["b", "a"], position=(self.shown or self.position)[::-1])
            state.header.stamp = from_nanoseconds(self.now())
            self.joints.publish(state)

    def _pulse(self) -> None:
        if self.beats:
            self._beat.publish(Heartbeat())


@pytest.fixture
def world(node: Any) -> World:
    return World(node)


@pytest.fixture
def start(start_node: Any, world: World, contract: Path, wait_until: Any) -> Callable[..., Any]:
    """Start an active command_node whose gate has echoed epoch 1."""

    def begin(**parameters: object) -> Any:
        process = start_node(MODULE, **({"contract": contract, "autostart": True} | parameters))
        wait_until(lambda: world.gate.reason == "held" or process.process.poll() is not None, 30.0, "an active node")
        assert process.process.poll() is None, process.output
        world.hold(1)
        wait_until(lambda: world.gate.epoch == 1, what="the echo of epoch 1")
        return process

    return begin


@pytest.fixture
def moving(start: Any, world: World, wait_until: Any) -> Any:
    """A command_node whose arm moves at epoch 1."""
    process = start()
    world.run(1)
    wait_until(lambda: len(world.commands) > 5, what="commands")
    assert world.gate.open
    return process


@pytest.fixture
def call(world: World, wait_until: Any) -> Callable[..., Any]:
    """`call(kind, service, request)` returns the response."""

    def ask(kind: Any, name: str, request: Any) -> Any:
        client = world.node.create_client(kind, name)
        assert client.wait_for_service(10.0)
        future = client.call_async(request)
        wait_until(future.done, what=name)
        world.node.destroy_client(client)
        return future.result()

    return ask


@pytest.fixture
def change(call: Any) -> Callable[[int], bool]:
    """`change(transition)` returns whether the node has made the transition."""

    def ask(transition: int) -> bool:
        request = ChangeState.Request(transition=Transition(id=transition))
        return bool(call(ChangeState, "command/change_state", request).success)

    return ask
