# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The state of policy_node on /diagnostics.

OK: as it should be. WARN: degraded. ERROR: what failed keeps the robot held. STALE: what it needs does not come.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.node import Node

from flashrt_ros.node import qos
from flashrt_ros.node.input_diagnostics import InputDiagnostics
from flashrt_ros.node.interfaces import msg
from flashrt_ros.node.mind import Mind
from flashrt_ros.node.policy_control import TOPICS, PolicyControl
from flashrt_ros.node.process_memory import resident_bytes
from flashrt_ros.node.rate_limit import RateLimit
from flashrt_ros.node.topic_events import TopicEvents
from flashrt_ros.node.topic_watch import TopicWatch

_NO_OBSERVATION = 0.5
"""Seconds without an observation from which on it is an error; the parts of one do not come at the same moment."""
_LONG_STAGE = 1.0
"""Seconds from which on a stage is worth a warning."""
_MIB = 1 << 20


class PolicyDiagnostics:
    """One status each for state, command_node, topics, inference, queue, capsules, device, process, every input."""

    def __init__(self, node: Node, control: PolicyControl, limit: RateLimit) -> None:
        self._node = node
        self._control = control
        self._limit = limit
        self._watch = TopicWatch(node)
        self._inputs = InputDiagnostics(node, self._watch)
        self._events = TopicEvents([], [])
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", qos.DIAGNOSTICS)
        self._tick: msg.Executed | None = None
        self._empty = 0
        self._before: dict[str, int] = {}

    def listen(self, subscriptions: Sequence[Any]) -> None:
        """Report the middleware's events of these subscriptions, and of no others, from now on."""
        self._events.destroy()
        self._events = TopicEvents([], subscriptions)

    def note_tick(self, tick: msg.Executed, is_open: bool) -> None:
        """Take a tick of a run."""
        self._tick = tick
        self._empty += is_open and not tick.active

    def publish(self, mind: Mind | None, last_restore: str, trouble: str) -> None:
        """Report. `mind` is None where nothing is configured; `trouble`: how the newest run failed."""
        report = DiagnosticArray(status=[self._state(last_restore, trouble), self._command_node(mind)])
        if mind is not None:
            report.status += [self._topics(), self._inference(mind), self._queue()]
            report.status += [self._capsules(mind), self._device(mind), self._process(mind)]
            inputs = self._inputs.of(mind.observer, running=self._control.running)
            report.status += [self._status(f"input {key}", *status) for key, status in inputs.items()]
        report.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(report)

    def _state(self, last_restore: str, trouble: str) -> DiagnosticStatus:
        control = self._control
        level, message = DiagnosticStatus.OK, "running" if control.running else f"held: {control.reason}"
        if self._grew("refused calls", self._limit.refused):
            level, message = DiagnosticStatus.WARN, f"{message}; calls were refused because they come too often"
        if self._watch.publishers("~/state") > 1:
            level, message = DiagnosticStatus.WARN, f"{message}; somebody else publishes its state too"
        if trouble and not control.running:
            level, message = DiagnosticStatus.ERROR, f"held: the newest run failed: {trouble}"
        values = {
            "epoch": control.epoch,
            "last restore": last_restore,
            "durable": control.durable_boundary or "none",
            "refused calls": self._limit.refused,
        }
        return self._status("state", level, message, values)

    def _command_node(self, mind: Mind | None) -> DiagnosticStatus:
        control, silence = self._control, self._control.silence
        troubles = {name: self._watch.trouble(name, kind, profile) for name, kind, profile in TOPICS}
        level, message = DiagnosticStatus.OK, "heard"
        if mind is not None and silence > mind.contract.heartbeat_timeout:
            level, message = DiagnosticStatus.STALE, f"silent for {silence:.1f} s"
        lacking = [f"{self._node.resolve_topic_name(name)}: {trouble}" for name, trouble in troubles.items() if trouble]
        if lacking:
            level, message = DiagnosticStatus.STALE, "; ".join(lacking)
        elif control.gate is None:
            level, message = DiagnosticStatus.STALE, "command_node has not been heard"
        values: dict[str, object] = {"silence, s": f"{silence:.2f}"}
        if control.gate is not None:
            values |= {"gate epoch": control.gate.epoch, "gate open": control.gate.open, "gate": control.gate.reason}
        return self._status("command_node", level, message, values)

    def _topics(self) -> DiagnosticStatus:
        level, message, counts = self._events.finding()
        if level != DiagnosticStatus.OK:
            self._node.get_logger().warning(f"topics: {message}")
        return self._status("topics", level, message, counts)

    def _inference(self, mind: Mind) -> DiagnosticStatus:
        inference, times = mind.inference, mind.inference.times
        middle, tail = times.percentiles()
        values: dict[str, object] = {
            "count": times.count,
            "last, ms": f"{times.last * 1e3:.1f}",
            "p50, ms": f"{middle * 1e3:.1f}",
            "p99, ms": f"{tail * 1e3:.1f}",
            "longest stage, ms": f"{mind.device.stages.longest * 1e3:.1f}",
            "queue depth": self._tick.remaining if self._tick is not None else 0,
            "captures": mind.policy.plan.backend.captures,
        }
        if mind.contract.action.strategy == "rtc":
            values["rows held"] = inference.rows_held
        values |= {f"dropped, {reason}": count for reason, count in sorted(inference.dropped.items())}
        degraded = self._grew("dropped chunks", sum(inference.dropped.values()))
        if inference.lacking and inference.waiting_for > _NO_OBSERVATION:
            return self._status("inference", DiagnosticStatus.ERROR, f"no observation: {inference.lacking}", values)
        level = DiagnosticStatus.WARN if degraded else DiagnosticStatus.OK
        return self._status("inference", level, "chunks were dropped" if degraded else "as planned", values)

    def _queue(self) -> DiagnosticStatus:
        """What command_node has left to run, as its newest tick said."""
        tick = self._tick
        values: dict[str, object] = {"ticks without a row": self._empty}
        if tick is not None:
            values |= {"rows left": tick.remaining, "chunk": tick.chunk_id, "cursor": tick.cursor, "steps": tick.steps}
        if self._grew("empty ticks", self._empty):
            return self._status("queue", DiagnosticStatus.WARN, "the queue ran dry: chunks come too late", values)
        return self._status("queue", DiagnosticStatus.OK, "as planned", values)

    def _capsules(self, mind: Mind) -> DiagnosticStatus:
        usage, trouble = mind.keeper.store.usage(), mind.keeper.trouble
        disk, limit = mind.keeper.disk_usage()
        values = {
            "count": usage.capsules,
            "bytes": usage.used_bytes,
            "budget": usage.budget_bytes,
            "evictions": usage.evictions,
            "disk bytes": disk,
            "disk budget": limit,
        }
        level = DiagnosticStatus.WARN if trouble else DiagnosticStatus.OK
        return self._status("capsules", level, trouble or "safe on the disk, or on the way there", values)

    def _process(self, mind: Mind) -> DiagnosticStatus:
        values = {"cpu, s": f"{time.process_time():.3f}", "cpu of inference, s": f"{mind.device.cpu_seconds():.3f}"}
        return self._status("process", DiagnosticStatus.OK, "processor time since the start", values)

    def _device(self, mind: Mind) -> DiagnosticStatus:
        plan, stalled = mind.policy.plan, mind.device.stalled_for()
        sizes: dict[str, int] = {}
        for (kind, _), arena in plan.buffers.arenas.items():
            sizes[kind] = sizes.get(kind, 0) + arena.nbytes
        captures = plan.backend.captures
        values: dict[str, object] = {
            "backend": plan.backend.name,
            "device": plan.backend.numerics()["device"],
            "captures": captures,
            "memory, MiB": f"{sum(sizes.values()) / _MIB:.1f}",
            **{f"memory, {kind}, MiB": f"{nbytes / _MIB:.1f}" for kind, nbytes in sorted(sizes.items())},
            "process memory, MiB": f"{resident_bytes() / _MIB:.1f}",
            "journal bytes": mind.session.live.journal.nbytes,
            "stage in progress, s": f"{stalled:.2f}",
        }
        if self._grew(f"captures of {id(plan)}", captures):
            return self._status("device", DiagnosticStatus.WARN, "stages were captured again", values)
        if stalled > _LONG_STAGE:
            return self._status("device", DiagnosticStatus.WARN, f"a stage has run for {stalled:.1f} s", values)
        return self._status("device", DiagnosticStatus.OK, "as planned", values)

    def _grew(self, what: str, count: int) -> bool:
        """Whether a count is larger than in the report before; the first one is none to compare with."""
        before, self._before[what] = self._before.get(what, count), count
        return count > before

    def _status(self, name: str, level: bytes, message: str, values: Mapping[str, object]) -> DiagnosticStatus:
        pairs = [KeyValue(key=key, value=str(value)) for key, value in values.items()]
        own = self._node.get_fully_qualified_name().lstrip("/")
        return DiagnosticStatus(level=level, name=f"{own}: {name}", message=message, hardware_id=own, values=pairs)
