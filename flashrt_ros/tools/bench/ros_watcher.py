# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Notes what the nodes say of themselves while they are measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.executors import SingleThreadedExecutor
from std_msgs.msg import Empty

from flashrt_ros.demo.processes import Processes
from flashrt_ros.demo.steps import until_active
from flashrt_ros.node import qos
from flashrt_ros.node.interfaces import msg
from flashrt_ros.node.stamps import to_nanoseconds
from flashrt_ros.tools.bench.ros_robot import END_OF_FRAMES

_REPORT_PATIENCE = 5.0  # s; each node reports once a second


@dataclass(frozen=True, slots=True)
class Status:
    """One status of /diagnostics; `stamp` in s since the epoch."""

    stamp: float
    values: dict[str, str]

    def number(self, key: str) -> float:
        """The number under a key."""
        return float(self.values[key])


Statuses = dict[str, Status]
"""By name."""


class Watcher:
    """A node that notes every tick and the newest diagnostics; spun by whoever waits.

    Attributes:
        ticks: when each control tick began, ns.
        moves: whether the newest tick ran an action.
        statuses: the newest diagnostics by name.
    """

    def __init__(self, processes: Processes) -> None:
        """`processes` must go on for as long as somebody waits."""
        self.ticks: list[int] = []
        self.moves = False
        self.statuses: Statuses = {}
        self._processes = processes
        self._node = rclpy.create_node("bench")
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self._node)
        self._end = self._node.create_publisher(Empty, END_OF_FRAMES, qos.COMMAND)
        self._node.create_subscription(msg.Executed, "command/executed", self._on_tick, qos.EXECUTED)
        self._node.create_subscription(DiagnosticArray, "/diagnostics", self._on_report, qos.DIAGNOSTICS)

    def until(self, condition: Callable[[], bool], patience: float, what: str) -> None:
        """Spin until a condition holds.

        Raises:
            TimeoutError: it did not within `patience` seconds.
            ProcessEndedError: a process ended.
        """
        deadline = time.monotonic() + patience
        while not condition():
            self._processes.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {patience:g} s for {what}")
            self._executor.spin_once(0.1)

    def until_active(self, name: str, patience: float) -> None:
        """Spin until a lifecycle node that starts by itself is active; errors as `until`, and at once if it cannot."""
        trouble = until_active(self._node, name, patience, self.until)
        if trouble:
            raise TimeoutError(trouble)

    def sees(self, nodes: Iterable[str]) -> bool:
        """Whether all of these nodes have been found."""
        return set(nodes) <= set(self._node.get_node_names())

    def end_frames(self) -> None:
        """Have the cameras show no more."""
        self._end.publish(Empty())

    def report(self, name: str, after: float) -> Status:
        """Wait for a status that is reported after a time, s since the epoch; TimeoutError."""

        def newer() -> bool:
            status = self.statuses.get(name)
            return status is not None and status.stamp > after

        self.until(newer, _REPORT_PATIENCE, f"diagnostics of {name}")
        return self.statuses[name]

    def _on_tick(self, tick: msg.Executed) -> None:
        self.moves = tick.active
        self.ticks.append(to_nanoseconds(tick.stamp))

    def _on_report(self, report: DiagnosticArray) -> None:
        stamp = to_nanoseconds(report.header.stamp) * 1e-9
        for status in report.status:
            self.statuses[status.name] = Status(stamp, {pair.key: pair.value for pair in status.values})
