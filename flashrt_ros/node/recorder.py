# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The log of boundaries on `~/boundary`, and the flight recorder: the newest of what the nodes saw, did and said."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.serialization import serialize_message

from flashrt_ros.node import qos
from flashrt_ros.node.incident import IncidentFolder, Situation
from flashrt_ros.node.interfaces import msg
from flashrt_ros.node.raw_messages import read_message
from flashrt_ros.node.recorder_ring import Item, Ring
from flashrt_ros.node.recorder_topics import DIAGNOSTICS, Topic, type_name
from flashrt_ros.node.stamps import duration_of, from_nanoseconds
from flashrt_ros.policy.action_map import ActionMap
from flashrt_ros.policy.contract import Contract
from flashrt_ros.policy.loading import Policy
from flashrt_ros.policy.replay_record import Done, Record, array_sha256, inputs_of
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

_TAIL = 1.0
"""Seconds that an incident goes on behind what triggered it, so that the safety action is in it."""

_COOLDOWN = 10.0
"""Seconds between two incidents of a kind that nobody asked for."""


@dataclass(frozen=True, slots=True)
class RecorderSettings:
    """`seconds` are kept at least, in `memory` bytes at most (0 s: none); incidents take `limit` bytes of the disk."""

    seconds: float
    memory: int
    folder: Path
    limit: int


class Recorder:
    """Hashes, serialises and publishes on a thread of its own, and writes on another."""

    def __init__(
        self,
        node: Node,
        contract: Contract,
        topics: tuple[Topic, ...],
        settings: RecorderSettings,
    ) -> None:
        """Subscribe to what is not observed anyway.

        Args:
            node: whose topics and clock are used.
            contract: names the observed topics.
            topics: what else is kept.
            settings: bounds of memory and disk.
        """
        self._node = node
        self._contract = contract
        self._situation: Situation | None = None
        self._rows: Callable[[np.ndarray], np.ndarray] = lambda actions: actions
        self._log = node.create_publisher(msg.BoundaryRecord, "~/boundary", qos.RECORD)
        images, state = contract.observation.images, contract.observation.state
        self._images = {image.key: node.resolve_topic_name(image.topic) for image in images}
        self._types = {node.resolve_topic_name(image.topic): image.type for image in images}
        self._types |= {node.resolve_topic_name(source.topic): source.type for source in state}
        self._types[self._log.topic_name] = type_name(msg.BoundaryRecord)
        self._ring: Ring | None = None
        self._subscriptions: list[Any] = []
        if settings.seconds:
            latched = [node.resolve_topic_name(topic.name) for topic in topics if topic.qos is qos.LATCHED]
            ring = self._ring = Ring(settings.seconds, settings.memory, self._images.values(), latched)
            self._subscriptions = [self._subscribe(ring, topic) for topic in topics]
        self._errors: set[str] = set()
        self._reasons: list[str] = []
        self._quiet_until: dict[str, float] = {}
        self._timer = node.create_timer(
            _TAIL, self._save_triggered, clock=Clock(clock_type=ClockType.STEADY_TIME), autostart=False
        )
        self._incidents = IncidentFolder(settings.folder, settings.limit)
        self._writer = ThreadPoolExecutor(1, "incidents")
        self._time_lock = threading.Lock()
        self._newest_time = 0
        self._inbox: queue.SimpleQueue[tuple[int, int, Done] | threading.Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()

    def situate(self, policy: Policy, actions: ActionMap, state: Callable[[], str]) -> None:
        """Take what an incident says of the node, and what becomes of its actions; before that, none can be written."""
        self._rows = actions.rows
        node = self._node
        self._situation = Situation(
            node=node.get_fully_qualified_name(),
            checkpoint=node.get_parameter("checkpoint").value,
            contract=self._contract.file.read_text(),
            parameters={name: node.get_parameter(name).value for name in node.get_parameters_by_prefix("")},
            manifest=policy.manifest(),
            buffers=policy.plan.buffers,
            policy_state=state,
        )

    # ---- what comes ----

    def done(self, done: Done) -> None:
        """Take what was done to the session; on the device thread."""
        self._inbox.put((self._time(), self._node.get_clock().now().nanoseconds, done))

    def state_wanted(self) -> bool:
        """Whether the session shall hand over its state; on the device thread."""
        return self._ring is not None and self._ring.state_wanted()

    def observed(self, topic: str, raw: bytes, stamp: int) -> None:
        """Take an observed message and its stamp (ns)."""
        if self._ring is None:
            return
        if topic in self._images.values():
            self._ring.add_image(self._time(), topic, stamp, raw)
        else:
            self._ring.add(self._time(), topic, raw)

    # ---- incidents ----

    def trigger(self, kind: str, reason: str) -> None:
        """Write an incident soon, unless one of that kind was written a moment ago."""
        now = time.monotonic()
        if self._ring is None or now < self._quiet_until.get(kind, 0.0):
            return
        self._quiet_until[kind] = now + _COOLDOWN
        self._timer.reset()
        self._reasons.append(reason)

    def save(self, reason: str) -> Future[Path]:
        """Write an incident; the future has its folder, or what the disk refused.

        Raises:
            FlashrtError: NOT_SUPPORTED, nothing is kept; INACTIVE, there is no policy yet.
        """
        ring, situation = self._ring, self._situation
        if ring is None:
            raise FlashrtError(ErrorCode.NOT_SUPPORTED, "nothing is recorded: the parameter recorder.seconds is 0")
        if situation is None:
            raise FlashrtError(ErrorCode.INACTIVE, "no policy is loaded yet, of which an incident could tell")
        logged = threading.Event()
        self._inbox.put(logged)

        def write() -> Path:
            logged.wait(_TAIL)  # what was done so far
            return self._incidents.write(reason, ring.window(), self._types, situation)

        return self._writer.submit(write)

    def save_within(self, reason: str, seconds: float) -> None:
        """Write an incident before the process ends, if that takes no longer than `seconds`."""
        try:
            path = self.save(reason).result(seconds)
        except (FlashrtError, TimeoutError) as error:
            self._node.get_logger().error(f"incident not written: {error or f'it takes longer than {seconds:g} s'}")
        else:
            self._node.get_logger().error(f"incident written to {path}")

    def close(self, timeout: float) -> None:
        """Write the incident that waits, end the threads, remove the topics; a write in progress is finished."""
        if self._reasons:
            self._save_triggered()
        self._inbox.put(None)
        self._thread.join(timeout)
        self._writer.shutdown(wait=True)
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._node.destroy_timer(self._timer)
        self._node.destroy_publisher(self._log)

    def _save_triggered(self) -> None:
        self._timer.cancel()
        reasons, self._reasons = self._reasons, []
        logger = self._node.get_logger()

        def written(done: Future[Path]) -> None:
            error = done.exception()
            if error is None:
                logger.warning(f"incident written to {done.result()}: {reasons[0]}")
            else:
                logger.error(f"incident not written: {error}")

        try:
            self.save("; ".join(reasons)).add_done_callback(written)
        except FlashrtError as error:
            logger.error(f"incident not written: {error}")

    # ---- the boundary log ----

    def _work(self) -> None:
        while (given := self._inbox.get()) is not None:
            if isinstance(given, threading.Event):
                given.set()
            else:
                self._log_one(*given)

    def _log_one(self, at: int, stamp: int, done: Done) -> None:
        record = replace(done.record, stamp=stamp)
        if done.observation is not None:
            record = replace(record, inputs=inputs_of(done.observation))
        if done.chunk is not None:
            record = replace(record, output_sha256=array_sha256(self._rows(done.chunk.actions)))
        raw = serialize_message(_message(record))
        if self._log.get_subscription_count():
            self._log.publish(raw)
        if self._ring is not None:
            used = [(self._images[part.key], part.stamp) for part in record.inputs if part.key in self._images]
            kept = done.capsule if record.verb != "snapshot" else None
            self._ring.add_record(Item(at, self._log.topic_name, raw, record, kept), used)

    # ---- topics ----

    def _subscribe(self, ring: Ring, topic: Topic) -> Any:
        def take(raw: bytes) -> None:
            if topic.name == DIAGNOSTICS:
                try:
                    self._look_for_errors(read_message(raw, DiagnosticArray))
                except FlashrtError:
                    return  # bytes that are no message, from whomever
            ring.add(self._time(), subscription.topic_name, raw)

        profile = qos.without_gaps(topic.qos)
        subscription = self._node.create_subscription(topic.kind, topic.name, take, profile, raw=True)
        self._types[subscription.topic_name] = type_name(topic.kind)
        return subscription

    def _look_for_errors(self, report: DiagnosticArray) -> None:
        for status in report.status:
            if status.level != DiagnosticStatus.ERROR:
                self._errors.discard(status.name)
            elif status.name not in self._errors:
                self._errors.add(status.name)
                self.trigger("diagnostic", f"{status.name}: {status.message}")

    def _time(self) -> int:
        """Nanoseconds of the system's clock, each call's above the one before."""
        with self._time_lock:
            self._newest_time = max(time.time_ns(), self._newest_time + 1)
            return self._newest_time


def _message(record: Record) -> msg.BoundaryRecord:
    plain = {name: getattr(record, name) for name in Record.__slots__ if name not in ("stamp", "delay", "inputs")}
    return msg.BoundaryRecord(
        **plain,
        stamp=from_nanoseconds(record.stamp),
        delay=duration_of(record.delay),
        input_keys=[part.key for part in record.inputs],
        input_stamps=[from_nanoseconds(part.stamp) for part in record.inputs],
        input_sha256=[part.sha256 for part in record.inputs],
    )
