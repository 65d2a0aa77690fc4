# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The lifecycle of policy_node, and who is told what.

One executor thread runs everything here and waits for nothing: what takes time is awaited.
"""

from __future__ import annotations

import gc
import os
import threading
from typing import NoReturn

from flashrt_ros.node import qos
from flashrt_ros.node.async_node import AsyncManagedNode
from flashrt_ros.node.capsule_keeper import CapsuleKeeper
from flashrt_ros.node.capsule_services import CapsuleServices
from flashrt_ros.node.device_thread import DeviceThread
from flashrt_ros.node.executor_bridge import ExecutorBridge
from flashrt_ros.node.inference import Inference, Inferred
from flashrt_ros.node.interfaces import msg
from flashrt_ros.node.mind import Mind
from flashrt_ros.node.mind_setup import Loaded, load, resume
from flashrt_ros.node.motion import Motion
from flashrt_ros.node.observer import Observer
from flashrt_ros.node.policy_control import PolicyControl
from flashrt_ros.node.policy_diagnostics import PolicyDiagnostics
from flashrt_ros.node.policy_messages import chunk_message
from flashrt_ros.node.policy_parameters import PARAMETERS, capsule_folder, read_settings, recorder_settings
from flashrt_ros.node.policy_run import End
from flashrt_ros.node.rate_limit import RateLimit
from flashrt_ros.node.recorder import Recorder
from flashrt_ros.node.recorder_service import serve_recorder
from flashrt_ros.node.recorder_topics import recorded_topics
from flashrt_ros.node.request_log import RequestLog
from flashrt_ros.node.run import BROKEN
from flashrt_ros.node.run_policy import RunPolicy
from flashrt_ros.node.run_services import RunServices
from flashrt_ros.node.verbs import Verbs
from flashrt_ros.policy.action_map import ActionMap
from flashrt_ros.policy.contract import Contract, load_contract
from flashrt_ros.policy.overlap import overlap_of
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

_WATCH_PERIOD = 0.05
_CLOSE_TIMEOUT = 2.0
_FLUSH_TIMEOUT = 0.2


class PolicyNode(AsyncManagedNode):
    """Serves one policy."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__("policy", stop, PARAMETERS)
        self._mind: Mind | None = None
        self._serving = False
        self._device: DeviceThread | None = None
        self._keeper: CapsuleKeeper | None = None
        self._recorder: Recorder | None = None
        self._chunk_id = 0
        self._bridge = ExecutorBridge(self)
        self._control = PolicyControl(self, self._bridge, self._on_gate_closed, self._on_epoch_lost)
        self._motion = Motion(
            self._control,
            self.get_parameter("gate_timeout").value,
            self.get_parameter("world").value == "simulated",
            lambda reason: self._runs.interrupt(reason),
        )
        self._serve()

    def _serve(self) -> None:
        log = RequestLog(self._bridge, self.get_parameter("remembered_requests").value)
        limit = RateLimit(self.get_parameter("rate_limit").value)
        samples = self.get_parameter("sample_limit").value
        self._verbs = Verbs(self, log, limit, self._control, self._motion, self._active_mind, samples)
        CapsuleServices(self, log, limit, capsule_folder(self), self._active_mind)
        patience = self.get_parameter("observation_timeout").value
        self._runs = RunPolicy(
            self, self._bridge, log, limit, self._control, self._motion, self._active_mind, patience, self._on_aborted
        )
        RunServices(self, log, limit, self._runs)
        serve_recorder(self, log, limit, self._bridge, self._active_mind)
        self._chunks = self.create_publisher(msg.ActionChunk, "~/action_chunk", qos.CHUNK)
        self._diagnostics = PolicyDiagnostics(self, self._control, limit)
        executed = self.create_subscription(msg.Executed, "command/executed", self._on_executed, qos.EXECUTED)
        self._heard = [*self._control.subscriptions, executed]
        self.create_timer(1.0 / self.get_parameter("heartbeat_rate").value, self._control.beat, clock=self.steady_clock)
        self.create_timer(_WATCH_PERIOD, self._watch, clock=self.steady_clock)
        self.create_timer(1.0, self._report, clock=self.steady_clock)

    # ---- lifecycle ----

    async def configure(self) -> None:
        """Load, check, capture and warm up on the device thread; restore the newest durable capsule."""
        settings = read_settings(self)
        contract = load_contract(settings.contract)
        device = self._device = DeviceThread(self._bridge, self._end_broken)
        logger = self.get_logger()
        recorder = self._recorder = Recorder(self, contract, recorded_topics(contract), recorder_settings(self))
        loaded = await device.run(lambda: load(settings, contract, device, recorder, logger.info))
        keeper = CapsuleKeeper(self._bridge, loaded.policy, loaded.session.store, loaded.writer, self._on_durable)
        self._keeper = keeper
        loaded.session.on_head = keeper.follow
        if settings.restore_on_start:
            restored = await resume(loaded.session, device, keeper, logger.info, logger.warning)
            if restored is not None:
                self._control.head, self._control.durable_boundary = restored, restored.id
        actions = ActionMap(contract.action, loaded.policy.model.config.action_names)
        control = self._control
        recorder.situate(loaded.policy, actions, lambda: "running" if control.running else f"held: {control.reason}")
        mind = self._mind = self._assemble(contract, loaded, actions, device, keeper, recorder)
        self._diagnostics.listen([*self._heard, *mind.observer.subscriptions.values()])
        gc.collect()
        gc.freeze()  # what loading has made stays: looking through it again would take longer than a verb may

    def _assemble(
        self,
        contract: Contract,
        loaded: Loaded,
        actions: ActionMap,
        device: DeviceThread,
        keeper: CapsuleKeeper,
        recorder: Recorder,
    ) -> Mind:
        def publish(inferred: Inferred) -> int:
            return self._publish_chunk(inferred)

        def came() -> None:
            inference.try_now()

        observer = Observer(self, contract, loaded.policy.model.config.state_names, came, recorder.observed)
        inference = Inference(
            self._bridge,
            device,
            loaded.session,
            observer,
            publish,
            self._on_inference_failed,
            contract.lockstep is not None,
            overlap_of(contract),
        )
        return Mind(contract, loaded.policy, actions, loaded.session, device, keeper, observer, inference, recorder)

    async def activate(self) -> None:
        """Serve, and be held until a goal comes."""
        self._serving = True
        self._control.hold("restored at the start" if self._control.head is not None else "no goal yet")

    async def deactivate(self) -> None:
        """Close the gate, end the goal, answer INACTIVE."""
        mind, self._serving = self._mind, False
        if mind is None:
            return
        try:
            await self._motion.close_gate(mind, "deactivated")
        except FlashrtError as error:
            # The robot is as safe as it can be made from here: every chunk is of an older epoch from now on.
            self.get_logger().warning(str(error))

    async def cleanup(self) -> None:
        """Free everything; the epoch is kept, since it never goes back."""
        mind, self._mind = self._mind, None
        self._diagnostics.listen([])
        if mind is not None:
            mind.observer.destroy()
        self._control.head = None
        if not self._close():
            self._end_broken("the stage in progress does not end")
        gc.unfreeze()
        gc.collect()

    def finish(self) -> bool:
        """Close the gate where it may be open, and end; also in the middle of configuring. False: a stage runs on."""
        self._serving = False
        if self._control.running:
            self._control.hold("policy_node ends")
            self._control.flush(_FLUSH_TIMEOUT)
        ended = self._close()
        if not ended:
            self.get_logger().warning("ending while the device still computes")
        return ended

    def _close(self) -> bool:
        """Write what waits and end the threads. False: the device thread is in a stage that does not end."""
        device, self._device = self._device, None
        ended = device is None or device.close(_CLOSE_TIMEOUT)
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.close(_CLOSE_TIMEOUT)
        keeper, self._keeper = self._keeper, None
        if keeper is not None and not keeper.close(_CLOSE_TIMEOUT):
            self.get_logger().warning("the newest capsules could not be written in time")
        return ended

    # ---- what comes ----

    def _active_mind(self) -> Mind:
        if self._mind is None or not self._serving:
            raise FlashrtError(ErrorCode.INACTIVE, f"policy_node is {self.state_label}; activate it first")
        return self._mind

    def _on_executed(self, tick: msg.Executed) -> None:
        mind, control, run = self._mind, self._control, self._runs.run
        if mind is None or run is None or tick.epoch != control.epoch or not control.running:
            return
        if tick.active:
            control.opened = True
        self._diagnostics.note_tick(tick, control.opened)
        mind.inference.on_executed(tick)
        run.on_executed(tick, mind, control)

    def _on_gate_closed(self, reason: str) -> None:
        if self._runs.run is not None:
            self._runs.run.gate_closed(reason)

    def _on_epoch_lost(self, reason: str) -> None:
        self.get_logger().error(f"held: {reason}; is there another policy_node?")
        self._runs.interrupt("epoch_lost")
        if self._mind is not None:
            self._mind.inference.stop()
            self._mind.device.preempt(self._mind.discard_plan)

    def _on_inference_failed(self, error: FlashrtError) -> None:
        self.get_logger().error(f"inference failed: {error.code.name}: {error}")
        if self._runs.run is not None:
            self._runs.run.fail(error)

    def _on_aborted(self, end: End) -> None:
        if self._recorder is not None:
            self._recorder.trigger("goal", f"goal aborted: {end.reason}: {end.message}")

    def _on_durable(self, boundary: str) -> None:
        self._control.durable_boundary = boundary

    def _publish_chunk(self, inferred: Inferred) -> int:
        mind = self._active_mind()
        self._chunk_id += 1
        now = int(self.get_clock().now().nanoseconds)
        self._chunks.publish(chunk_message(mind, inferred, epoch=self._control.epoch, chunk_id=self._chunk_id, now=now))
        self._control.head = inferred.chunk.boundary
        self._control.publish()
        if inferred.note:
            self.get_logger().info(inferred.note)
        return self._chunk_id

    # ---- time ----

    def _watch(self) -> None:
        self._bridge.run()
        self._control.publish_durable()
        mind = self._mind
        if mind is None:
            return
        deadline = self.get_parameter("stage_deadline").value
        stalled = mind.device.stalled_for()
        if stalled > deadline:
            self._end_broken(f"a stage has been running for {stalled:.1f} s, {deadline:g} s are allowed")
        self._control.silence += _WATCH_PERIOD
        if self._runs.run is not None:
            self._runs.run.watch(mind, self._control)

    def _report(self) -> None:
        self._diagnostics.publish(self._mind, self._verbs.last_restore, self._runs.trouble)

    def _end_broken(self, what: str) -> NoReturn:
        """End the process: command_node does the safety action, and a new process restores what is durable."""
        self.get_logger().fatal(f"the device cannot be used any more: {what}; exiting with code {BROKEN}")
        self._control.hold(f"broken: {what}")
        self._control.flush(_FLUSH_TIMEOUT)
        if self._recorder is not None:
            self._recorder.save_within(f"broken: {what}", _CLOSE_TIMEOUT)
        os._exit(BROKEN)
