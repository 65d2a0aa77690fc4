# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What stands on the other side of policy_node's topics: robot and command_node in one."""

from __future__ import annotations

import threading
from array import array
from typing import Any

import numpy as np
from rclpy.node import Node
from sensor_msgs.msg import Image, JointState
from waiting import wait

from flashrt_ros.models.tiny import JOINTS
from flashrt_ros.node import qos
from flashrt_ros.node.interfaces import msg
from flashrt_ros.node.stamps import from_nanoseconds

PERIOD = 100_000_000
THRESHOLD = 4


class Arm:
    """Robot and command_node in one: echoes the gate, shows an instant at each tick, executes chunks.

    With `auto` it goes on by itself while the policy runs: one row a tick, as fast as chunks come.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.states: list[msg.PolicyState] = []
        self.chunks: list[msg.ActionChunk] = []
        self.beats = 0
        self.stamp = 1_000 * PERIOD
        self.positions = dict.fromkeys(JOINTS, 0.1)
        self.encoding = "rgb8"
        self.absent: set[str] = set()
        self.frozen: dict[str, int] = {}
        """Stamps (ns) of the views whose camera gives all images the same."""
        self.auto = self.echo = True
        self.dry_run = False
        self.epoch = self.steps = self.cursor = 0
        self.running = self.open = self.asked = False
        self.closed_at = 0
        self.closings: dict[int, int] = {}
        self.rows = self.cursor = 0
        self.chunk_id = self.step_limit = 0
        self.ran = -1
        self._lock = threading.RLock()
        self._gate = node.create_publisher(msg.Gate, "command/gate", qos.LATCHED)
        self._executed = node.create_publisher(msg.Executed, "command/executed", qos.EXECUTED)
        self._beat = node.create_publisher(msg.Heartbeat, "command/heartbeat", qos.HEARTBEAT)
        self._joints = node.create_publisher(JointState, "joint_states", 10)
        self._views: dict[str, Any] = {}
        self.find_cameras(("front", "wrist"))
        node.create_subscription(msg.PolicyState, "policy/state", self._on_state, qos.LATCHED)
        node.create_subscription(msg.ActionChunk, "policy/action_chunk", self._on_chunk, qos.CHUNK)
        node.create_subscription(msg.Heartbeat, "policy/heartbeat", self._on_beat, qos.HEARTBEAT)
        self.heartbeat = node.create_timer(0.1, lambda: self._beat.publish(msg.Heartbeat()))
        node.create_timer(0.2, self._repeat)
        self.close("inactive")

    def find_cameras(self, order: tuple[str, ...]) -> None:
        """Let the cameras come, and their images, one after the other."""
        with self._lock:
            for publisher in self._views.values():
                self.node.destroy_publisher(publisher)
            self._views = {view: self.node.create_publisher(Image, f"camera/{view}/image_raw", 10) for view in order}

    def close(self, reason: str, enabled: bool = True) -> None:
        """Close the gate and say why."""
        with self._lock:
            self.running = self.open = self.asked = False
            self.closed_at = self.stamp
            self.closings.setdefault(self.epoch, self.stamp)
            self.rows = self.cursor = 0
            self.say(reason, enabled)

    def say(self, reason: str, enabled: bool = True) -> None:
        self._gate.publish(
            msg.Gate(
                epoch=self.epoch,
                open=self.open,
                dry_run=self.dry_run,
                enabled=enabled,
                closed_at=from_nanoseconds(self.closed_at),
                reason=reason,
            )
        )

    def tick(self, infer: bool = False) -> None:
        """Show the next instant and report it; one that a chunk is asked for, once it is heard."""
        if infer and not self.auto:
            wait(self._is_heard, what="the policy to have found the arm")
        with self._lock:
            self.stamp += PERIOD
            active = self.rows > self.cursor
            self.cursor += active
            self.steps += active
            self.show(self.stamp)
            self.asked |= infer
            self.report(self.stamp, active, infer)

    def _is_heard(self) -> bool:
        shown = [publisher for view, publisher in self._views.items() if view not in self.absent]
        return all(publisher.get_subscription_count() for publisher in (self._joints, *shown))

    def show(self, stamp: int) -> None:
        """Publish joints and images."""
        if "state" not in self.absent:
            message = JointState(name=list(self.positions), position=list(self.positions.values()))
            message.header.stamp = from_nanoseconds(stamp)
            self._joints.publish(message)
        channels = {"rgb8": 3, "16UC1": 2}[self.encoding]
        for view, publisher in self._views.items():
            if view in self.absent:
                continue
            random = np.random.default_rng([stamp // PERIOD, *view.encode()])
            image = Image(height=96, width=96, encoding=self.encoding, step=96 * channels)
            image.data = array("B", random.integers(0, 255, 96 * 96 * channels, np.uint8).tobytes())
            image.header.stamp = from_nanoseconds(self.frozen.get(view, stamp))
            publisher.publish(image)

    def report(self, stamp: int, active: bool, infer: bool) -> None:
        self._executed.publish(
            msg.Executed(
                stamp=from_nanoseconds(stamp),
                epoch=self.epoch,
                active=active,
                chunk_id=self.chunk_id if self.rows else 0,
                cursor=self.cursor,
                remaining=self.rows - self.cursor,
                steps=self.steps,
                infer=infer,
            )
        )

    def catch_up(self) -> None:
        """Follow the newest state; for one that was told not to."""
        self.echo = True
        self._on_state(self.states[-1])

    def newest_chunk(self, after: int = 0) -> msg.ActionChunk:
        """Wait for a chunk behind the first `after` ones."""
        return wait(lambda: len(self.chunks) > after and self.chunks[-1], what="a chunk")

    def _on_state(self, state: msg.PolicyState) -> None:
        with self._lock:
            self.states.append(state)
            if state.epoch < self.epoch or not self.echo:
                return
            raised = state.epoch > self.epoch
            self.epoch = state.epoch
            if raised:
                self.steps = 0
            if state.state == msg.PolicyState.HELD:
                if raised or self.running:
                    self.close(f"held: {state.reason}")
            elif self.ran < self.epoch:  # an epoch runs once
                self.running, self.ran, self.step_limit = True, self.epoch, state.step_limit
                self.say("waiting: for the first chunk")
                if self.auto:
                    self.tick(infer=True)

    def take(self, chunk: msg.ActionChunk) -> None:
        """Execute a chunk from now on."""
        self.rows, self.cursor, self.chunk_id, self.asked = chunk.horizon, chunk.start, chunk.chunk_id, False
        if not self.open:
            self.open = True
            self.say("")

    def _on_chunk(self, chunk: msg.ActionChunk) -> None:
        with self._lock:
            self.chunks.append(chunk)
            if self.auto and self.running and chunk.epoch == self.epoch:
                self.take(chunk)
                self._advance()

    def _advance(self) -> None:
        while self.rows > self.cursor:
            left = self.rows - self.cursor - 1
            self.tick(infer=left <= THRESHOLD and not self.asked)
            if 0 < self.step_limit <= self.steps:
                self.close("step_limit")

    def _repeat(self) -> None:
        """Show the instant again that is waited for: one who joined late has missed it."""
        with self._lock:
            if self.auto and self.running and self.asked:
                self.show(self.stamp)

    def _on_beat(self, beat: msg.Heartbeat) -> None:
        self.beats += 1
