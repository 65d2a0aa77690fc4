# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The state of policy_node on /diagnostics.

OK: as it should be. WARN: degraded. ERROR: it cannot go on by itself. STALE: inputs do not come.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.node import Node

from flashrt_ros.node import qos
from flashrt_ros.node.mind import Mind
from flashrt_ros.node.policy_control import PolicyControl
from flashrt_ros.policy.observation_buffer import Part

_NO_OBSERVATION = 0.5
"""Seconds without an observation from which on it is an error; the parts of one do not come at the same moment."""


class PolicyDiagnostics:
    """One status each for state, inference, capsules, process and every input."""

    def __init__(self, node: Node, control: PolicyControl) -> None:
        self.queue_depth = 0
        self._node = node
        self._control = control
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", qos.DIAGNOSTICS)
        self._dropped = 0
        self._refused: dict[str, int] = {}

    def publish(self, mind: Mind | None, last_restore: str) -> None:
        """Report; `mind` is None where nothing is configured."""
        report = DiagnosticArray(status=[self._state(last_restore)])
        if mind is not None:
            report.status += [self._inference(mind), self._capsules(mind), self._process(mind)]
            report.status += [self._input(part) for part in mind.observer.buffer.parts.values()]
        report.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(report)

    def _state(self, last_restore: str) -> DiagnosticStatus:
        control = self._control
        level, message = DiagnosticStatus.OK, "running" if control.running else f"held: {control.reason}"
        if control.gate is None:
            level, message = DiagnosticStatus.STALE, "command_node has not been heard"
        values = {"epoch": control.epoch, "last restore": last_restore, "durable": control.durable_boundary or "none"}
        return self._status("state", level, message, values)

    def _inference(self, mind: Mind) -> DiagnosticStatus:
        inference, times = mind.inference, mind.inference.times
        middle, tail = times.percentiles()
        values: dict[str, object] = {
            "count": times.count,
            "last, ms": f"{times.last * 1e3:.1f}",
            "p50, ms": f"{middle * 1e3:.1f}",
            "p99, ms": f"{tail * 1e3:.1f}",
            "longest stage, ms": f"{mind.device.stages.longest * 1e3:.1f}",
            "queue depth": self.queue_depth,
            "captures": mind.policy.plan.backend.captures,
        }
        values |= {f"dropped, {reason}": count for reason, count in sorted(inference.dropped.items())}
        total = sum(inference.dropped.values())
        degraded, self._dropped = total > self._dropped, total
        if inference.lacking and inference.waiting_for > _NO_OBSERVATION:
            return self._status("inference", DiagnosticStatus.ERROR, f"no observation: {inference.lacking}", values)
        level = DiagnosticStatus.WARN if degraded else DiagnosticStatus.OK
        return self._status("inference", level, "chunks were dropped" if degraded else "as planned", values)

    def _capsules(self, mind: Mind) -> DiagnosticStatus:
        usage, trouble = mind.keeper.store.usage(), mind.keeper.trouble
        values = {
            "count": usage.capsules,
            "bytes": usage.used_bytes,
            "budget": usage.budget_bytes,
            "evictions": usage.evictions,
        }
        level = DiagnosticStatus.WARN if trouble else DiagnosticStatus.OK
        return self._status("capsules", level, trouble or "safe on the disk, or on the way there", values)

    def _process(self, mind: Mind) -> DiagnosticStatus:
        values = {"cpu, s": f"{time.process_time():.3f}", "cpu of inference, s": f"{mind.device.cpu_seconds():.3f}"}
        return self._status("process", DiagnosticStatus.OK, "processor time since the start", values)

    def _input(self, part: Part) -> DiagnosticStatus:
        now = self._node.get_clock().now().nanoseconds
        refused, self._refused[part.key] = part.refused - self._refused.get(part.key, 0), part.refused
        level, message = DiagnosticStatus.OK, "fresh"
        age = None if part.stamp is None else now - part.stamp
        if age is None or age > part.max_age:
            level = DiagnosticStatus.STALE
            message = (
                "nothing has come" if age is None else f"{age / 1e9:.3f} s old, {part.max_age / 1e9:g} are allowed"
            )
        if refused:
            level, message = DiagnosticStatus.ERROR, f"refused: {part.refusal or 'some messages, not the newest'}"
        values = {
            "topic": part.topic,
            "age, s": "none" if age is None else f"{age / 1e9:.3f}",
            "received": part.received,
            "refused": part.refused,
        }
        return self._status(f"input {part.key}", level, message, values)

    def _status(self, name: str, level: bytes, message: str, values: Mapping[str, object]) -> DiagnosticStatus:
        pairs = [KeyValue(key=key, value=str(value)) for key, value in values.items()]
        own = self._node.get_fully_qualified_name().lstrip("/")
        return DiagnosticStatus(level=level, name=f"{own}: {name}", message=message, hardware_id=own, values=pairs)
