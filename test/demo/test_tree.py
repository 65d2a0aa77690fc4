# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The tree against nodes that are made up: what it concludes when they do what they should, and when they do not."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builtin_interfaces.msg import Duration
from lifecycle_msgs.srv import GetState
from rclpy.action import ActionServer
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from spinning import spun
from std_srvs.srv import Trigger

from flashrt_interfaces import action, msg, srv
from flashrt_ros.demo.play import StepFailedError, play
from flashrt_ros.demo.report import Report
from flashrt_ros.node import qos
from flashrt_ros.node.stamps import from_nanoseconds

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # s; far beyond what anything here takes
PERIOD = 100_000_000  # ns
ROWS = 4


def digest(value: object) -> bytes:
    return hashlib.sha256(repr(value).encode()).digest()


class FakeNodes:
    """Robot, policy and command in one node: a mind is a list of inputs, and what it does is a hash of them."""

    def __init__(self, fault: str) -> None:
        self._fault = fault
        self._mind: list[object] = []
        self._world: object = 0
        self._saved_world: object = 0
        self._capsules: dict[str, list[object]] = {}
        self._epoch, self._stamp, self._chunk_id = 1, PERIOD, 0
        self._spent = False
        node = self._node = Node("fake")
        self._clock = node.create_publisher(Clock, "/clock", qos.CLOCK)
        self._command = node.create_publisher(JointState, "joint_command", 100)
        self._chunk = node.create_publisher(msg.ActionChunk, "policy/action_chunk", qos.CHUNK)
        self._executed = node.create_publisher(msg.Executed, "command/executed", qos.EXECUTED)
        self._gate = node.create_publisher(msg.Gate, "command/gate", qos.LATCHED)
        self._state = node.create_publisher(msg.PolicyState, "policy/state", qos.LATCHED)
        for service in ("robot/save_world", "robot/load_world", "command/hold"):
            node.create_service(Trigger, service, getattr(self, "_" + service.partition("/")[2]))
        for name in ("policy", "command"):
            node.create_service(GetState, f"{name}/get_state", self._get_state)
        verbs = (srv.Snapshot, srv.Fork, srv.Restore, srv.Rollback, srv.Reset)
        for kind in verbs:
            name = kind.__name__.lower()
            node.create_service(kind, f"policy/{name}", getattr(self, f"_{name}"))
        node.create_service(srv.ListCapsules, "policy/list_capsules", self._list)
        self._action = ActionServer(node, action.RunPolicy, "policy/run_policy", self._run)
        self._timer = node.create_timer(0.2, self._show)  # as the robot does for those who join late
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        self._publish(running=False)
        self._spun = contextlib.ExitStack()
        self._spun.enter_context(spun(executor))

    def close(self) -> None:
        self._spun.close()
        self._action.destroy()
        self._node.destroy_node()

    # ---- time and topics ----

    def _show(self) -> None:
        self._clock.publish(Clock(clock=from_nanoseconds(self._stamp)))

    def _publish(self, *, running: bool, is_open: bool = False) -> None:
        self._state.publish(msg.PolicyState(epoch=self._epoch, state=int(running)))
        self._gate.publish(msg.Gate(epoch=self._epoch, open=is_open))

    def _tick(self, values: bytes) -> None:
        command = JointState(name=["elbow"], position=struct.unpack("<4d", values))
        command.header.stamp = from_nanoseconds(self._stamp)
        self._command.publish(command)
        self._world = digest((self._world, values))
        self._stamp += PERIOD
        self._show()

    def _raise(self) -> None:
        self._epoch += 1
        self._spent = False
        self._publish(running=False)
        self._tick(digest("hold"))

    # ---- robot ----

    def _save_world(self, request: Any, response: Any) -> Any:
        self._saved_world = self._world
        response.success = True
        return response

    def _load_world(self, request: Any, response: Any) -> Any:
        self._world = self._saved_world
        self._stamp += PERIOD
        self._show()
        response.success = self._fault != "no world"
        response.message = "no world is saved"
        return response

    # ---- command ----

    def _hold(self, request: Any, response: Any) -> Any:
        self._tick(digest("hold"))
        response.success = True
        return response

    # ---- policy ----

    def _get_state(self, request: Any, response: Any) -> Any:
        response.current_state.label = "active"
        return response

    def _answer(self, response: Any, prefilled: int = 0) -> Any:
        response.boundary = f"b{len(self._mind)}"
        response.position = len(self._mind)
        response.prefilled_tokens = prefilled
        response.taken = Duration(nanosec=1_500_000)
        return response

    def _snapshot(self, request: Any, response: Any) -> Any:
        self._capsules[request.name] = list(self._mind)
        return self._answer(response)

    _fork = _snapshot

    def _restore(self, request: Any, response: Any) -> Any:
        self._raise()
        self._mind = list(self._capsules[request.name])
        if self._fault == "restore forgets":
            self._mind.append("lost something")
        return self._answer(response, prefilled=9 if self._fault == "restore prefills" else 0)

    def _rollback(self, request: Any, response: Any) -> Any:
        self._raise()
        self._mind = self._mind[: -request.steps - (self._fault == "rollback too far")]
        return self._answer(response)

    def _reset(self, request: Any, response: Any) -> Any:
        self._raise()
        kept = request.instruction in self._capsules
        self._mind = self._capsules.setdefault(request.instruction, [request.instruction])[:]
        return self._answer(response, prefilled=0 if kept else 5)

    def _list(self, request: Any, response: Any) -> Any:
        for name, mind in self._capsules.items():
            response.capsules.append(msg.Capsule(name=name, sha256=digest(mind).hex()))
        return response

    def _run(self, goal: Any) -> Any:
        request = goal.request
        if self._spent or request.start_from:
            self._raise()
        self._spent = True
        if request.start_from:
            self._mind = list(self._capsules[request.start_from])
        if request.instruction:
            self._mind = [*(self._mind if request.start_from else []), request.instruction]
            self._capsules.setdefault(request.instruction, [request.instruction])
        if request.retry and self._fault != "retries are alike":
            self._mind.append(request.retry)
        self._publish(running=True)
        for step in range(request.step_limit):
            if step % ROWS == 0:
                self._infer()
            if step == 0:
                self._publish(running=True, is_open=True)
            stamp = from_nanoseconds(self._stamp)
            self._executed.publish(
                msg.Executed(stamp=stamp, epoch=self._epoch, active=True, chunk_id=self._chunk_id, steps=step + 1)
            )
            self._tick(digest((self._mind, step)))
        self._publish(running=False)
        self._tick(digest("hold"))
        goal.publish_feedback(action.RunPolicy.Feedback(inference_time=Duration(nanosec=20_000_000)))
        goal.succeed()
        return action.RunPolicy.Result(steps=request.step_limit, prefilled_tokens=5 if request.instruction else 0)

    def _infer(self) -> None:
        self._mind += [("observe", self._world), "act"]
        self._chunk_id += 1
        data = struct.unpack("<4d", digest(self._mind))
        self._chunk.publish(
            msg.ActionChunk(epoch=self._epoch, chunk_id=self._chunk_id, horizon=ROWS, joint_names=["elbow"], data=data)
        )


@pytest.fixture
def start_nodes(context: None) -> Iterator[Callable[[str], FakeNodes]]:
    started: list[FakeNodes] = []

    def start(fault: str) -> FakeNodes:
        started.append(FakeNodes(fault))
        return started[-1]

    yield start
    for nodes in started:
        nodes.close()


@pytest.fixture
def play_with(start_nodes: Callable[[str], FakeNodes]) -> Iterator[Callable[[str], Report]]:
    node = Node("tree")

    def run(fault: str) -> Report:
        start_nodes(fault)
        return play(node, period=PERIOD, seed=1, steps=8, on_tick=lambda step: None)

    yield run
    node.destroy_node()


def run_tree_node(steps: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "flashrt_ros.demo.tree_node", "--ros-args", "-p", f"steps:={steps}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)


def verdicts(report: Report) -> dict[str, bool]:
    return {verdict.claim: verdict.held for verdict in report.verdicts}


def test_all_holds_where_the_nodes_do_what_they_should(play_with: Callable[[str], Report]) -> None:
    report = play_with("")
    assert report.held, report.verdicts
    assert [(row.verb.split()[0], row.prefilled_tokens, row.calls) for row in report.rows] == [
        ("cold", 5, 3),
        ("snapshot", 0, 1),
        ("restore", 0, 4),
        ("fork", 0, 2),
        ("rollback", 0, 1),
        ("reset", 0, 1),
    ]
    assert report.rows[2].milliseconds == 1.5
    assert "2 chunks, 10 joint commands" in report.verdicts[0].detail
    assert report.notes == ("inference: 20 ms a chunk, 50 chunks a second at most",)


@pytest.mark.parametrize(
    ("fault", "claims"),
    [
        ("restore forgets", {"restored = original"}),
        ("restore prefills", {"restore and reset prefilled nothing"}),
        ("rollback too far", {"rolled back = its boundary"}),
        ("retries are alike", {"two forks of one boundary continue differently"}),
    ],
)
def test_a_fault_is_a_no(play_with: Callable[[str], Report], fault: str, claims: set[str]) -> None:
    report = play_with(fault)
    assert not report.held
    assert {claim for claim, held in verdicts(report).items() if not held} == claims


def test_a_step_that_fails_is_named(play_with: Callable[[str], Report]) -> None:
    with pytest.raises(StepFailedError, match="load the world: no world is saved"):
        play_with("no world")


@pytest.mark.parametrize(("fault", "code", "words"), [("", 0, "original: yes"), ("restore forgets", 1, "original: NO")])
def test_the_tree_is_a_node_too(start_nodes: Callable[[str], FakeNodes], fault: str, code: int, words: str) -> None:
    start_nodes(fault)
    process = run_tree_node(8)
    text, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, text
    assert words in text


def test_a_signal_ends_the_tree_node_with_0() -> None:
    process = run_tree_node(8)  # without anything to talk to
    assert process.stdout is not None
    first = process.stdout.readline()
    assert "command to be active" in first
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, text
    assert "Traceback" not in text


def test_the_tree_node_names_a_bad_parameter() -> None:
    process = run_tree_node(0)
    text, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "steps" in text
    assert "Traceback" not in text
