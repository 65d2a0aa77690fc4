# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The state of command_node on /diagnostics.

OK: as it should be. WARN: degraded since the last report. ERROR: the gate was closed by a fault. STALE: no input.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.node import Node

from flashrt_ros.node import qos
from flashrt_ros.node.lateness import Lateness
from flashrt_ros.node.stamps import from_nanoseconds
from flashrt_ros.node.topic_events import TopicEvents
from flashrt_ros.policy.contract import Contract
from flashrt_ros.policy.controller import Controller

_WARNING_REASONS = ("disabled", "released", "publisher", "spent", "inactive")


class CommandDiagnostics:
    """One status each for gate, queue, execution, measured joints, policy heartbeat, topics, ticks and process."""

    def __init__(
        self, node: Node, contract: Contract, controller: Controller, lateness: Lateness, events: TopicEvents
    ) -> None:
        self._node = node
        self._contract = contract
        self._controller = controller
        self._lateness = lateness
        self._events = events
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", qos.DIAGNOSTICS)
        self._troubles = 0
        self._late_chunks = 0
        self._lost = 0

    def publish(self, now: int, heartbeat_age: float | None) -> None:
        """Report. `now`: ROS time in ns; `heartbeat_age`: seconds since the policy's last heartbeat, None: none yet."""
        report = DiagnosticArray(
            status=[
                self._gate(),
                self._queue(),
                self._execution(),
                self._joints(now),
                self._policy(heartbeat_age),
                self._topics(),
                self._ticks(),
                self._process(),
            ]
        )
        report.header.stamp = from_nanoseconds(now)
        self._publisher.publish(report)

    def destroy(self) -> None:
        """Remove the publisher."""
        self._node.destroy_publisher(self._publisher)

    def _status(self, name: str, level: bytes, message: str, values: Mapping[str, object]) -> DiagnosticStatus:
        pairs = [KeyValue(key=key, value=str(value)) for key, value in values.items()]
        own = self._node.get_fully_qualified_name().lstrip("/")
        return DiagnosticStatus(level=level, name=f"{own}: {name}", message=message, hardware_id=own, values=pairs)

    def _gate(self) -> DiagnosticStatus:
        gate = self._controller.gate
        level = DiagnosticStatus.OK
        if gate.reason.partition(":")[0] in _WARNING_REASONS:
            level = DiagnosticStatus.WARN
        if gate.fault:
            level = DiagnosticStatus.ERROR
        state = gate.state
        message = "open" if state.open else f"closed: {state.reason}"
        values = {
            "epoch": state.epoch,
            "enabled": state.enabled,
            "dry run": state.dry_run,
            "released": gate.released,
            "other publishers": gate.rivals or "none",
        }
        return self._status("gate", level, message, values)

    def _queue(self) -> DiagnosticStatus:
        controller = self._controller
        queue, latency = controller.queue, controller.latency
        middle, tail = latency.percentiles()
        values = {
            "chunk": queue.chunk_id,
            "rows left": queue.remaining,
            "latency p50, ms": f"{middle * 1e3:.1f}",
            "latency p99, ms": f"{tail * 1e3:.1f}",
            "latency last, ms": f"{latency.last * 1e-6:.1f}",
            "latencies": len(latency),
        }
        empty = controller.gate.open and not queue.remaining and self._contract.action.strategy != "sync"
        level = DiagnosticStatus.WARN if empty else DiagnosticStatus.OK
        return self._status("queue", level, "empty while the gate is open" if empty else "as planned", values)

    def _execution(self) -> DiagnosticStatus:
        controller = self._controller
        saturations = controller.saturation.counts
        troubles = controller.late_ticks + sum(controller.dropped.values()) + sum(saturations.values())
        degraded, self._troubles = troubles > self._troubles, troubles
        late, self._late_chunks = controller.late_chunks - self._late_chunks, controller.late_chunks
        if late:
            self._node.get_logger().warning(f"chunks that came late, or not yet: {late}; meanwhile the arm is held")
        values: dict[str, object] = {
            "steps in this epoch": controller.steps,
            "late chunks": controller.late_chunks,
            "ticks without a row": controller.late_ticks,
            "holds": controller.holds,
        }
        values |= {f"dropped, {reason}": count for reason, count in sorted(controller.dropped.items())}
        values |= {f"saturated, {joint}": count for joint, count in saturations.items()}
        level = DiagnosticStatus.WARN if degraded else DiagnosticStatus.OK
        message = "chunks were late, dropped or saturated" if degraded else "as planned"
        return self._status("execution", level, message, values)

    def _joints(self, now: int) -> DiagnosticStatus:
        joints = self._controller.joints
        trouble = joints.trouble(now)
        level = DiagnosticStatus.STALE if trouble else DiagnosticStatus.OK
        return self._status("measured joints", level, trouble or "fresh", {"refused messages": joints.refused})

    def _policy(self, heartbeat_age: float | None) -> DiagnosticStatus:
        timeout = self._contract.heartbeat_timeout
        if heartbeat_age is None:
            return self._status("policy", DiagnosticStatus.STALE, "no heartbeat yet", {})
        silent = heartbeat_age > timeout
        message = "silent" if silent else "alive"
        level = DiagnosticStatus.STALE if silent else DiagnosticStatus.OK
        return self._status("policy", level, message, {"heartbeat age, s": f"{heartbeat_age:.3f}"})

    def _topics(self) -> DiagnosticStatus:
        return self._status("topics", *self._events.finding())

    def _ticks(self) -> DiagnosticStatus:
        middle, tail, most = self._lateness.percentiles()
        lost = self._lateness.lost
        degraded, self._lost = lost > self._lost, lost
        values = {
            "lateness p50, ms": f"{middle * 1e3:.3f}",
            "lateness p99, ms": f"{tail * 1e3:.3f}",
            "lateness max, ms": f"{most * 1e3:.3f}",
            "lost": lost,
        }
        level = DiagnosticStatus.WARN if degraded else DiagnosticStatus.OK
        return self._status("ticks", level, "ticks were lost" if degraded else "in time", values)

    def _process(self) -> DiagnosticStatus:
        values = {"cpu, s": f"{time.process_time():.3f}"}
        return self._status("process", DiagnosticStatus.OK, "processor time since the start", values)
