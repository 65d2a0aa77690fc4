# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What command_node has between configure and cleanup: a controller, and the topics, services and timers around it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from rclpy.timer import Timer
from rosgraph_msgs.msg import Clock
from std_msgs.msg import Bool
from std_srvs.srv import Trigger

from flashrt_ros.node import qos
from flashrt_ros.node.command_diagnostics import CommandDiagnostics
from flashrt_ros.node.command_output import CommandOutput
from flashrt_ros.node.input_messages import INPUT_TYPES, stamp_of
from flashrt_ros.node.interfaces import msg
from flashrt_ros.node.lateness import Lateness
from flashrt_ros.node.managed_node import ManagedNode
from flashrt_ros.node.rival_publishers import RivalPublishers
from flashrt_ros.node.stamps import from_nanoseconds, to_nanoseconds
from flashrt_ros.node.topic_events import TopicEvents
from flashrt_ros.policy.contract import Contract
from flashrt_ros.policy.gate import Gate, GateState
from flashrt_ros.policy.joint_merger import JointMerger
from flashrt_ros.policy.lockstep import LockstepController
from flashrt_ros.policy.timed import TimedController


@dataclass(frozen=True, slots=True)
class CommandSettings:
    """The parameters that configure reads. `heartbeat_rate` in Hz."""

    simulated: bool
    dry_run: bool
    require_enable: bool
    heartbeat_rate: float


class CommandIO:
    """Turns messages into events of the controller. One executor thread runs every callback: no locks."""

    def __init__(
        self,
        node: ManagedNode,
        contract: Contract,
        settings: CommandSettings,
        epoch: int,
        on_expired: Callable[[], None],
    ) -> None:
        """`epoch`: the highest that this process has seen; `on_expired` is called when a hold has lasted too long."""
        self._node = node
        self._contract = contract
        self._settings = settings
        self._clock_stamp = 0
        self._heard: float | None = None
        self._on_expired = on_expired
        self._alive = 0.0
        self._longest_silence = max(contract.observation.max_age, 2.0 / settings.heartbeat_rate)
        self._held_since: float | None = None
        self._expired = ""
        self._timers: list[Timer] = []
        now = self._lockstep_now if contract.lockstep else self._now
        gate = Gate(
            epoch=epoch,
            enabled=not settings.require_enable,
            dry_run=settings.dry_run,
            exact_allowed=settings.simulated or settings.dry_run,
            now=now(),
        )
        self._output = CommandOutput(node, contract.action, dry_run=settings.dry_run, now=now, on_gate=self._on_gate)
        self.controller: TimedController | LockstepController
        if contract.lockstep:
            self.controller = LockstepController(contract, self._output, gate, now, contract.lockstep.apply_after)
        else:
            self.controller = TimedController(contract, self._output, gate, now, self._look_for_stop)
        self._joints = JointMerger(contract.observation, contract.action.joints)
        self._lateness = Lateness(contract.action.period)
        # A dry run disturbs nobody, and nobody disturbs it.
        self._rivals = [] if settings.dry_run else [RivalPublishers(node, each) for each in self._output.commands]
        self._heartbeat = msg.Heartbeat()
        self._beat = node.create_publisher(msg.Heartbeat, "~/heartbeat", qos.HEARTBEAT)
        self._watchdog = node.create_timer(
            contract.heartbeat_timeout, self._on_silence, clock=node.steady_clock, autostart=False
        )
        self._subscriptions = self._subscribe()
        self._events = TopicEvents([*self._output.publishers, self._beat], self._subscriptions)
        self._diagnostics = CommandDiagnostics(node, contract, self.controller, self._lateness, self._events)
        self._services = [
            node.create_service(Trigger, "~/hold", self._on_hold),
            node.create_service(Trigger, "~/release", self._on_release),
        ]
        self._output.gate(gate.state)

    def _subscribe(self) -> list[Any]:
        topics: list[tuple[type, str, Any, Any]] = [
            (msg.PolicyState, "policy/state", self._on_policy_state, qos.LATCHED),
            (Bool, "~/enable", self._on_enable, qos.ENABLE),
            (msg.Heartbeat, "policy/heartbeat", self._on_heartbeat, qos.HEARTBEAT),
            (msg.ActionChunk, "policy/action_chunk", self._on_chunk, qos.CHUNK),
        ]
        for index, source in enumerate(self._joints.sources):
            kind, profile = INPUT_TYPES[source.type], qos.input_qos(source.qos)
            topics.append((kind, source.topic, partial(self._on_joints, index), profile))
        if self._contract.lockstep:
            topics.append((Clock, "/clock", self._on_clock, qos.CLOCK))
        return [self._node.create_subscription(kind, topic, call, profile) for kind, topic, call, profile in topics]

    def start(self) -> None:
        """Start ticks and heartbeats; the gate stays closed until a new epoch runs."""
        node = self._node
        self._alive = time.monotonic()
        self._timers = [
            node.create_timer(1.0 / self._settings.heartbeat_rate, self._on_beat, clock=node.steady_clock),
            node.create_timer(1.0, self._report, clock=node.steady_clock),
        ]
        if isinstance(self.controller, TimedController):
            self._tick = self.controller.tick
            self._control = node.create_timer(1.0 / self._contract.action.rate, self._on_tick)
            self._timers.append(self._control)
        self.controller.activate()

    def stop(self) -> None:
        """Close the gate, with the safety action where it was open, and stop ticks and heartbeats."""
        self.controller.deactivate(self._expired)
        self._finish_hold()
        self._held_since, self._expired = None, ""
        self._output.flush()
        self._watchdog.cancel()
        for timer in self._timers:
            self._node.destroy_timer(timer)
        self._timers = []

    def _finish_hold(self) -> None:
        """Bring the arm to rest while there are ticks; nothing else matters to a node that stops.

        Steady time paces it: simulated time may stand still by now. What a pause of this process has swallowed is not
        caught up with: several steps at once would break the limits of acceleration.
        """
        controller = self.controller
        if not isinstance(controller, TimedController) or not controller.stopping:
            return
        pause = max(0.0, self._control.time_until_next_call() * 1e-9)
        while controller.stopping:
            time.sleep(pause)
            controller.brake(self._now())
            pause = 1.0 / self._contract.action.rate

    def destroy(self) -> None:
        """Free topics, services and timers."""
        node = self._node
        self._events.destroy()
        self._diagnostics.destroy()
        self._output.destroy()
        node.destroy_publisher(self._beat)
        node.destroy_timer(self._watchdog)
        for subscription in self._subscriptions:
            node.destroy_subscription(subscription)
        for service in self._services:
            node.destroy_service(service)

    # ---- time ----

    def _now(self) -> int:
        return int(self._node.get_clock().now().nanoseconds)

    def _lockstep_now(self) -> int:
        return self._clock_stamp

    def _on_tick(self) -> None:
        self._look_for_stop()
        self._lateness.add(self._now(), self._control.time_until_next_call())
        self._tick()

    def _look_for_stop(self) -> None:
        """Close the gate where this process was stopped: ROS time may stand still until the first /clock behind it."""
        now, before = time.monotonic(), self._alive
        self._alive = now
        if now - before > self._longest_silence and isinstance(self.controller, TimedController):
            self.controller.stopped(now - before)

    def _on_beat(self) -> None:
        self._look_for_stop()
        beat = self._heartbeat
        beat.stamp = from_nanoseconds(self._now())
        beat.epoch = self.controller.gate.epoch
        beat.sequence += 1
        self._beat.publish(beat)
        self._look_for_rivals()
        self._watch_hold()

    def _look_for_rivals(self) -> None:
        self.controller.rivals(", ".join(filter(None, (rivals.names() for rivals in self._rivals))))

    def _watch_hold(self) -> None:
        timeout = self.controller.safety.timeout
        if timeout is None or not self.controller.holding:
            self._held_since = None
        elif self._held_since is None:
            self._held_since = time.monotonic()
        elif time.monotonic() - self._held_since > timeout:
            why = self.controller.gate.reason or "no chunk came"
            self._expired = f"a hold lasted longer than {timeout:g} s: {why}"
            self._on_expired()

    def _on_silence(self) -> None:
        self._look_for_stop()
        self._watchdog.cancel()
        self.controller.heartbeat_lost()

    # ---- reports ----

    def _on_gate(self, state: GateState) -> None:
        log = self._node.get_logger()
        text = f"gate {'open' if state.open else 'closed'} at epoch {state.epoch}"
        if self.controller.gate.fault:
            log.error(f"{text}: {state.reason}")
            self._report()
        else:
            log.info(f"{text}: {state.reason}" if state.reason else text)

    def _report(self) -> None:
        age = None if self._heard is None else time.monotonic() - self._heard
        self._diagnostics.publish(self._now(), age)

    # ---- topics and services ----

    def _on_policy_state(self, state: msg.PolicyState) -> None:
        running = state.state == msg.PolicyState.RUNNING
        if running:
            self._look_for_rivals()
            if self._watchdog.is_canceled():
                self._watchdog.reset()  # one that has not sent a heartbeat yet has no more time than another
        self.controller.policy_state(state.epoch, running=running, step_limit=state.step_limit, reason=state.reason)

    def _on_heartbeat(self, heartbeat: msg.Heartbeat) -> None:
        self._heard = time.monotonic()
        self._watchdog.reset()

    def _on_chunk(self, chunk: msg.ActionChunk) -> None:
        self.controller.chunk(
            epoch=chunk.epoch,
            chunk_id=chunk.chunk_id,
            observation_stamp=to_nanoseconds(chunk.observation_stamp),
            names=chunk.joint_names,
            data=chunk.data,
            horizon=chunk.horizon,
            start=chunk.start,
            dt=to_nanoseconds(chunk.dt),
            exact=chunk.exact,
        )

    def _on_joints(self, index: int, message: Any) -> None:
        stamp = stamp_of(self._joints.sources[index].stamp, message, self._now)
        found = self._joints.merge(index, message, stamp)
        if found is not None:
            self.controller.measured(found.names, found.positions, found.stamp)

    def _on_clock(self, clock: Clock) -> None:
        self._clock_stamp = to_nanoseconds(clock.clock)
        if isinstance(self.controller, LockstepController):
            self.controller.clock(self._clock_stamp)

    def _on_enable(self, enable: Bool) -> None:
        self.controller.enable(enable.data)

    def _on_hold(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        trouble = self.controller.hold()
        response.success, response.message = not trouble, trouble or "holding; the next run moves the arm again"
        return response

    def _on_release(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self.controller.release()
        response.success, response.message = True, "silent until ~/hold is called"
        return response
