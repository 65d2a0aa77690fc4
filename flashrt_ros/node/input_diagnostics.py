# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What is to say of each input of a contract."""

from __future__ import annotations

from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.node import Node

from flashrt_ros.node.observer import Observer
from flashrt_ros.node.topic_watch import TopicWatch
from flashrt_ros.policy.observation_buffer import Part

Finding = tuple[bytes, str, dict[str, object]]
"""Level, message and values of a status."""


class InputDiagnostics:
    """OK: fresh. WARN: messages were lost, late or refused. STALE: too old. ERROR: a run is held up by that."""

    def __init__(self, node: Node, watch: TopicWatch) -> None:
        self._node = node
        self._watch = watch
        self._troubled: dict[str, int] = {}

    def of(self, observer: Observer, *, running: bool) -> dict[str, Finding]:
        """Judge all inputs, by key; `running`: somebody waits for them."""
        return {key: self._judge(observer, part, running) for key, part in observer.buffer.parts.items()}

    def _judge(self, observer: Observer, part: Part, running: bool) -> Finding:
        meter, subscription = observer.meters[part.key], observer.subscriptions[part.key]
        unserved = self._watch.trouble(subscription.topic_name, subscription.msg_type, subscription.qos_profile)
        now = int(self._node.get_clock().now().nanoseconds)
        age = None if part.stamp is None else now - part.stamp
        values: dict[str, object] = {
            "topic": subscription.topic_name,
            "age, s": "none" if age is None else f"{age / 1e9:.3f}",
            "observed age, s": "none" if part.taken is None else f"{part.taken.age / 1e9:.3f}",
            "observed skew, s": "none" if part.taken is None else f"{part.taken.skew / 1e9:.3f}",
            "rate, Hz": f"{meter.rate():.1f}",
            "delivered": meter.delivered,
            "dropped": meter.dropped,
            "late": meter.late,
            "refused": part.refused,
            "publishers": self._watch.publishers(subscription.topic_name),
            "publishers lost": self._watch.lost.get(subscription.topic_name, 0),
        }
        total = meter.dropped + meter.late + part.refused
        degraded = total > self._troubled.get(part.key, 0)
        self._troubled[part.key] = total
        level, message = self._freshness(part, age)
        if level != DiagnosticStatus.OK and running:
            level = DiagnosticStatus.ERROR
        if level == DiagnosticStatus.OK and degraded:
            level, message = DiagnosticStatus.WARN, "fresh, but messages were lost, late or refused"
        about = [unserved, f"refused: {part.refusal}" if part.refusal else ""]
        return level, "; ".join(filter(None, [message, *about])), values

    def _freshness(self, part: Part, age: int | None) -> tuple[bytes, str]:
        if age is None:
            return DiagnosticStatus.STALE, "nothing has come"
        if age > part.max_age:
            return DiagnosticStatus.STALE, f"{age / 1e9:.3f} s old, {part.max_age / 1e9:g} are allowed"
        return DiagnosticStatus.OK, "fresh"
