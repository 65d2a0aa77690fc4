# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A client of policy_node that notes how long its calls take: three call one service each, `runs` restores and runs.

It goes on until SIGINT, so that the load lasts for as long as anything is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import rclpy
from rclpy.action import ActionClient
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions
from rclpy.task import Future

from flashrt_ros.node import qos
from flashrt_ros.node.interfaces import action, msg, srv
from flashrt_ros.node.stamps import to_nanoseconds
from flashrt_ros.tools.acquaint import until_known

CALL_PERIOD = 0.05
RUN_PERIOD = 1.0
ANCHOR = "anchor"
_PATIENCE = 20.0
_SIGNAL_INTERVAL = 0.1  # s; Python looks for signals when the executor has stopped waiting
Calls = dict[str, list[tuple[float, float]]]
"""When each call was made (of `time.time`), and the seconds that it took, by what was measured."""


class StoppedError(Exception):
    """SIGINT came."""


class Client:
    """A node that this thread alone spins, and what it has measured."""

    def __init__(self, role: str) -> None:
        self.node = rclpy.create_node(node_name(role))
        self.calls: Calls = {}
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self.node)
        self._stopped = False
        signal.signal(signal.SIGINT, self._stop)

    def service(self, kind: Any, name: str) -> Callable[[Any], Any]:
        """Return a function that calls a service of policy_node, and notes its round trip under the name."""
        client = self.node.create_client(kind, f"policy/{name}")

        def spin(future: Future, seconds: float) -> None:
            self._spin_until(future.done, time.monotonic() + seconds)

        until_known(client, kind.Request(), spin, _PATIENCE)  # without a name or seeds: refused, or a list

        def call(request: Any) -> Any:
            called = time.time()
            response = self.wait(client.call_async(request), name)
            if response.error_code:
                raise RuntimeError(f"{name} was refused: {response.error_msg}")
            self.note(name, called, time.time() - called)
            return response

        return call

    def note(self, name: str, called: float, seconds: float) -> None:
        """Note a figure of a call made at `called` (of `time.time`)."""
        self.calls.setdefault(name, []).append((called, seconds))

    def wait(self, future: Future, what: str) -> Any:
        """Spin until a future is done and return its result."""
        self.until(future.done, f"the answer of {what}")
        return future.result()

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Spin until a condition holds."""
        if not self._spin_until(condition, time.monotonic() + _PATIENCE):
            raise TimeoutError(f"waited {_PATIENCE:g} s for {what}")

    def pause(self, due: float) -> None:
        """Spin until `due` (of `time.monotonic`)."""
        self._spin_until(lambda: False, due)

    def close(self) -> None:
        """Free the node."""
        self._executor.shutdown()
        self.node.destroy_node()

    def _spin_until(self, condition: Callable[[], Any], due: float) -> bool:
        while not (holds := bool(condition())) and (left := due - time.monotonic()) > 0:
            self._spin(left)
        return holds

    def _spin(self, seconds: float) -> None:
        if self._stopped:
            raise StoppedError
        self._executor.spin_once(min(seconds, _SIGNAL_INTERVAL))

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopped = True


def node_name(role: str) -> str:
    """The name of a client's node."""
    return f"bench_{role}"


def snapshots(client: Client) -> None:
    """Save, `1 / CALL_PERIOD` times a second; the node's budget evicts what is old."""
    _call_often(client, srv.Snapshot, "snapshot", lambda count: srv.Snapshot.Request(name=f"call_{count}"))


def lists(client: Client) -> None:
    """List as often."""
    _call_often(client, srv.ListCapsules, "list_capsules", lambda count: srv.ListCapsules.Request())


def samples(client: Client) -> None:
    """Sample as often."""
    _call_often(client, srv.SampleActions, "sample_actions", lambda count: srv.SampleActions.Request(seeds=[count]))


def _call_often(client: Client, kind: Any, name: str, request: Callable[[int], Any]) -> None:
    call = client.service(kind, name)
    due, count = time.monotonic(), 0
    while True:
        call(request(count))
        count += 1
        due = max(due + CALL_PERIOD, time.monotonic())
        client.pause(due)


def runs(client: Client) -> None:
    """Let the policy run, restore it every `RUN_PERIOD`, and let it run again."""
    node, gate = client.node, msg.Gate()

    def on_gate(newest: msg.Gate) -> None:
        nonlocal gate
        gate = newest

    node.create_subscription(msg.Gate, "command/gate", on_gate, qos.LATCHED)
    snapshot, restore = client.service(srv.Snapshot, "snapshot"), client.service(srv.Restore, "restore")
    goals = ActionClient(node, action.RunPolicy, "policy/run_policy")
    if not goals.wait_for_server(_PATIENCE):
        raise TimeoutError("policy/run_policy is not there")

    def run(goal: action.RunPolicy.Goal) -> None:
        client.wait(goals.send_goal_async(goal), "run_policy")
        client.until(lambda: gate.open, f"the gate to open; it says '{gate.reason}'")

    run(action.RunPolicy.Goal(instruction="press the button that lit up"))
    client.pause(time.monotonic() + RUN_PERIOD)
    snapshot(srv.Snapshot.Request(name=ANCHOR, pinned=True))
    while True:
        due, epoch, called = time.monotonic() + RUN_PERIOD, gate.epoch, time.time()
        restore(srv.Restore.Request(name=ANCHOR))
        client.until(lambda epoch=epoch: gate.epoch > epoch, "the gate to follow")  # type: ignore[misc]
        client.note("closing", called, to_nanoseconds(gate.closed_at) * 1e-9 - called)
        run(action.RunPolicy.Goal())
        client.pause(due)


def main() -> int:
    """Be one client until SIGINT, then write what it measured."""
    roles = {role.__name__: role for role in (runs, snapshots, lists, samples)}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=roles)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    client = Client(options.role)
    with contextlib.suppress(StoppedError):
        roles[options.role](client)
    options.output.write_text(json.dumps(client.calls))
    client.close()
    rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
