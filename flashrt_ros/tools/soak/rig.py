# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Everything that a soak runs: the robot, both nodes, clients, and the hands that disturb them."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import rclpy
import yaml
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rclpy.action import ActionClient
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions
from std_msgs.msg import Bool

from flashrt_ros.demo.nodes import checkpoint_command, contract_file, node_command
from flashrt_ros.demo.processes import Processes
from flashrt_ros.demo.steps import until_active
from flashrt_ros.node import qos
from flashrt_ros.node.interfaces import action, srv
from flashrt_ros.node.process_memory import resident_bytes
from flashrt_ros.policy.contract import load_contract
from flashrt_ros.tools.soak.client import ANCHOR
from flashrt_ros.tools.soak.link import PREFIX, TOPICS, Link
from flashrt_ros.tools.soak.watch import Watch

NODES = ("command", "policy")
_SERVICES: dict[str, Any] = {
    "policy/snapshot": srv.Snapshot,
    "policy/list_capsules": srv.ListCapsules,
    **{f"{node}/change_state": ChangeState for node in NODES},
}
RECOVERY = 10.0
"""Seconds from the end of a fault within which the arm must move again."""

_START_PATIENCE = 90.0  # s
_RATE = 10.0  # control ticks a second
_ROBOT_RATE = 20.0  # Hz
_MAX_AGE = 0.4  # s; the robot shows something every 0.05 s
_HEARTBEAT_TIMEOUT = 0.6  # s; a node that is stopped for a second is missed
_OBSERVATION_TIMEOUT = 3.0  # s
_BUDGET = 8  # MiB of each store: full soon, so that memory has no reason to grow


class StuckError(Exception):
    """What was waited for did not come."""


class Rig:
    """A context: entering it starts everything, leaving it ends it; whoever waits spins.

    Attributes:
        link: between the robot and the nodes.
        watch: what the nodes say and command.
        contract: theirs.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` gets checkpoint, contract, capsules and logs."""
        self._folder = folder
        self._stack = ExitStack()
        self._processes = Processes(folder / "logs")

    def __enter__(self) -> Rig:
        with self._stack:
            self._stack.enter_context(self._processes)
            self.contract = load_contract(_write_contract(self._folder / "contract.yaml"))
            rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
            self._stack.callback(rclpy.try_shutdown)
            self.node = rclpy.create_node("soak")
            self._stack.callback(self.node.destroy_node)
            self._executor = SingleThreadedExecutor()
            self._executor.add_node(self.node)
            self._stack.callback(self._executor.shutdown)
            self.link = Link(self.node)
            self.watch = Watch(self.node, self.contract)
            self._enable = self.node.create_publisher(Bool, "command/enable", qos.ENABLE)
            self._goals = ActionClient(self.node, action.RunPolicy, "policy/run_policy")
            # Before the nodes are: when they are first called they have found these for long.
            self._services = {name: self.node.create_client(kind, name) for name, kind in _SERVICES.items()}
            self._start()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    # ---- time ----

    def until(self, condition: Callable[[], object], patience: float, what: str) -> float:
        """Spin until a condition holds. Returns the seconds that it took.

        Raises:
            StuckError: it did not hold in time.
            ProcessEndedError: a process has ended.
        """
        began = time.monotonic()
        while not condition():
            self._processes.check()
            if time.monotonic() - began > patience:
                raise StuckError(f"waited {patience:.1f} s for {what}")
            self._executor.spin_once(0.01)
        return time.monotonic() - began

    def spin(self, seconds: float) -> None:
        """Spin for a time."""
        due = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= due, seconds + 1.0, "time to pass")

    def readable(self, stream: IO[str]) -> None:
        """Spin until a process has written something."""
        self.until(lambda: select.select([stream], [], [], 0.0)[0], _START_PATIENCE, "a process")

    # ---- what is done to the nodes ----

    def call(self, service: str, /, patience: float = RECOVERY, **fields: Any) -> Any:
        """Call one of `_SERVICES`, and return its answer."""
        client = self._services[service]
        self.until(client.service_is_ready, patience, f"the service {service}")
        future = client.call_async(_SERVICES[service].Request(**fields))
        self.until(future.done, patience, f"the answer of {service}")
        return future.result()

    def send(self, **fields: Any) -> Any:
        """Send a goal, and return its acceptance."""
        self.until(self._goals.server_is_ready, RECOVERY, "the action server")
        future = self._goals.send_goal_async(action.RunPolicy.Goal(**fields))
        self.until(future.done, RECOVERY, "the goal's acceptance")
        return future.result()

    def move(self) -> float:
        """Have the arm move, with as many goals as that takes within RECOVERY. Returns the seconds that it took."""
        began = time.monotonic()
        while (why := self._run(max(0.1, began + RECOVERY - time.monotonic()))) != "":
            if time.monotonic() - began > RECOVERY:
                raise StuckError(f"no goal moves the arm: {why}")
            self.spin(0.1)
        return time.monotonic() - began

    def _run(self, patience: float) -> str:
        """Send a goal and wait until it moves the arm. Returns why it ended before that; empty: it did not."""
        sent = time.monotonic()
        result = self.send(instruction="press the button that lit up").get_result_async()
        self.until(lambda: self.watch.moves(sent) or result.done(), patience, "the arm to move")
        return f"{result.result().result.error_msg}" if result.done() else ""

    def transition(self, node: str, transition: int) -> bool:
        """Ask a node for a transition."""
        request = Transition(id=transition)
        return bool(self.call(f"{node}/change_state", transition=request).success)

    def enable(self, enabled: bool) -> None:
        """Say it as an e-stop does."""
        self._enable.publish(Bool(data=enabled))

    def signal(self, node: str, number: signal.Signals) -> None:
        """Send a signal to a node's process."""
        self._processes.send(node, number)

    def memory(self) -> dict[str, int]:
        """Resident bytes of each node."""
        return {node: resident_bytes(self._processes.pid(node)) for node in NODES}

    # ---- start ----

    def _start(self) -> None:
        checkpoint = self._folder / "checkpoint"
        subprocess.run(checkpoint_command(checkpoint, 0), check=True, capture_output=True)
        node = {"contract": self.contract.file, "autostart": "true", "use_sim_time": "true"}
        policy = {
            "checkpoint": checkpoint,
            "capsule_folder": self._folder / "capsules",
            "observation_timeout": _OBSERVATION_TIMEOUT,
            **dict.fromkeys(("capsule_folder_limit", "capsule_budget", "journal_budget", "recorder.memory"), _BUDGET),
            **dict.fromkeys(("recorder.folder_limit", "recipe_log_limit"), _BUDGET),
        }
        robot = {"mode": "realtime", "rate": _ROBOT_RATE, "renderer": "drawn"}
        remapped = [word for _, topic in TOPICS.values() for word in ("-r", f"{topic}:={PREFIX}{topic}")]
        self._processes.start("robot", [*node_command("demo.robot_node", robot), *remapped])
        self._processes.start("command", node_command("node.command_node", node))
        self._processes.start("policy", node_command("node.policy_node", {**node, **policy}))
        for name in NODES:
            if trouble := until_active(self.node, name, _START_PATIENCE, self.until):
                raise StuckError(trouble)
        self.until(lambda: self.watch.gate.epoch, _START_PATIENCE, "the first epoch")
        self.move()
        self.call("policy/snapshot", name=ANCHOR, pinned=True)
        self._processes.start("client", [sys.executable, "-m", "flashrt_ros.tools.soak.client", "steady"])


def _write_contract(path: Path) -> Path:
    """Write the demo's contract, paced by a timer, with little patience."""
    contract = yaml.safe_load(contract_file().read_text())
    del contract["lockstep"]
    contract["action"] |= {"rate": _RATE, "threshold": 10}
    contract["heartbeat_timeout"] = _HEARTBEAT_TIMEOUT
    observation = contract["observation"]
    for source in (*observation["images"].values(), observation["state"]):
        source["max_age"] = _MAX_AGE
    path.write_text(yaml.safe_dump(contract))
    return path
