# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What command_node does, without ROS: events in, commands and reports out.

Two kinds differ in what paces the ticks: a timer (timed.py) or simulated time (lockstep.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flashrt_ros.policy.action_queue import ActionQueue, Chunk, UnfitChunkError, arrange_rows
from flashrt_ros.policy.contract import Contract
from flashrt_ros.policy.following import Following
from flashrt_ros.policy.gate import Gate, GateState, is_plausible
from flashrt_ros.policy.interface import interface_of
from flashrt_ros.policy.joint_merger import max_age_of
from flashrt_ros.policy.latency_tracker import LatencyTracker
from flashrt_ros.policy.measured_joints import MeasuredJoints
from flashrt_ros.policy.plausibility import Plausibility
from flashrt_ros.policy.safety import SafetyAction


@dataclass(frozen=True, slots=True)
class ExecutedTick:
    """One control tick, as `Executed` reports it."""

    stamp: int
    epoch: int
    active: bool
    chunk_id: int
    cursor: int
    remaining: int
    steps: int
    infer: bool


class Output(Protocol):
    """Where a controller's results go, in the order in which they happen."""

    def command(self, stamp: int, rows: NDArray[np.float64]) -> None:
        """Send commands [rows, joints] to the robot, for the tick at `stamp` ns and those after it."""
        ...

    def safety(self, stamp: int, rows: NDArray[np.float64]) -> None:
        """Send the safety action: commands [rows, joints] that end at rest, or go on to it; `stamp` in ns."""
        ...

    def executed(self, tick: ExecutedTick) -> None:
        """Report a tick."""
        ...

    def gate(self, state: GateState) -> None:
        """Report a change of the gate."""
        ...


class Controller(ABC):
    """Gate, queue, limits and measured joints, and what each event does to them."""

    def __init__(self, contract: Contract, output: Output, gate: Gate, now: Callable[[], int]) -> None:
        """`now` returns ROS time in ns."""
        action = contract.action
        self.gate = gate
        self.queue = ActionQueue(action.period)
        self.interface = interface_of(action)
        self.saturation = self.interface.saturation
        self.safety = SafetyAction(action.joints, action.safety)
        self.joints = MeasuredJoints(action.joints, max_age_of(contract.observation.sources_of(action.joints)))
        self.latency = LatencyTracker()
        self.steps = 0
        self.dropped: Counter[str] = Counter()
        """Chunks and states that were not used, by reason."""
        self.late_chunks = 0
        """How often the rows of an open gate ran out before the next chunk came."""
        self.late_ticks = 0
        """Ticks of an open gate without a row to run, where there should have been one."""
        self.holds = 0
        """Safety actions, each of one command or more."""
        self._contract = contract
        self._action = action
        self._output = output
        self._now = now
        self._waits_between = action.strategy == "sync"
        self._handed_over = max(1, int(action.max_handover * 1e9 / action.period + 1e-6))
        self._out_of_rows = False
        self._asked_at: int | None = None
        self._newest_chunk = 0
        self._commanded: NDArray[np.float64] | None = None
        self._change = np.zeros(len(action.joints))
        """By how much the last command differs from the one a tick before."""
        self._plausibility = Plausibility(action.joints, action.limits, action.period, self.interface.slack)
        # Of a dry run the arm knows nothing.
        self._following = Following(action.joints, None if gate.state.dry_run else action.limits.following)

    @property
    def holding(self) -> bool:
        """Whether the arm is held because of trouble while the policy still means to run."""
        return self.gate.running and (self.gate.fault or (self.gate.open and self._out_of_rows))

    # ---- events ----

    def activate(self) -> None:
        """Let the next RUNNING arm the gate."""
        self.gate.active = True
        self.gate.fault = False  # whoever activates has seen it
        self._explain("spent: a newer epoch arms the gate" if self.gate.running else "held")
        self._wake()

    def deactivate(self, fault: str = "") -> None:
        """Close the gate for good: with the safety action where it was open. `fault`: why nobody asked for it."""
        self._close(f"inactive: {fault}" if fault else "inactive", fault=bool(fault))
        self.gate.active = False

    def policy_state(self, epoch: int, *, running: bool, step_limit: int, reason: str) -> None:
        """Follow the policy's epoch and state."""
        if epoch < self.gate.epoch:
            self.dropped["state of an older epoch"] += 1
            return
        if not is_plausible(epoch, self.gate.epoch):
            self.dropped["implausible epoch"] += 1
            return
        before, was_armed = self.gate.state, self.gate.armed
        raised = self.gate.adopt(epoch, running=running, step_limit=step_limit, reason=reason, now=self._now())
        if raised:
            self.steps = 0
            self.latency.restart()
        if raised or (was_armed and not self.gate.armed):
            self._stop(was_open=before.open, raised=raised)
        if self.gate.state != before:
            self._output.gate(self.gate.state)
        self._wake()

    def chunk(
        self,
        *,
        epoch: int,
        chunk_id: int,
        observation_stamp: int,
        names: Sequence[str],
        data: ArrayLike,
        horizon: int,
        start: int,
        dt: int,
        exact: bool,
    ) -> None:
        """Take a chunk for the next tick, or drop it and count why. Arguments as in ActionChunk; times in ns."""
        if epoch != self.gate.epoch:
            self.dropped["another epoch"] += 1
            return
        if not self.gate.armed:
            self.dropped["gate closed"] += 1
            return
        try:
            rows = arrange_rows(
                self._action.joints, self._action.period, names=names, data=data, horizon=horizon, start=start, dt=dt
            )
        except UnfitChunkError as unfit:
            self.dropped[unfit.fault] += 1
            self._close(f"bad_chunk: chunk {chunk_id}: {unfit}", fault=True)
            return
        if self._asked_at is not None:
            self.latency.add(self._now() - self._asked_at, computed=not exact)
        self._asked_at = None
        if not self.gate.fresh(observation_stamp, exact=exact):
            self.dropped["observed before the gate closed"] += 1
        elif observation_stamp > self._now() + self.joints.max_age:
            self.dropped["observed in the future"] += 1
        elif not self.gate.is_exempt(exact) and self._is_stale(observation_stamp, horizon):
            self.dropped["stale"] += 1
        elif chunk_id <= self._newest_chunk:
            self.dropped["repeated"] += 1
        elif not is_plausible(chunk_id, self._newest_chunk):
            self.dropped["implausible id"] += 1  # all that came behind it would be repetitions
        else:
            self._newest_chunk = chunk_id
            self.queue.stage(Chunk(epoch, chunk_id, observation_stamp, rows, start, exact))
        self._wake()

    def measured(self, names: Sequence[str], positions: ArrayLike, stamp: int) -> None:
        """Take measured joints; `stamp` in ns."""
        self.joints.update(names, positions, stamp)
        self._wake()

    def enable(self, enabled: bool) -> None:
        """Follow the external enable input: false closes the gate now, true arms nothing by itself."""
        if enabled == self.gate.enabled:
            return
        self.gate.enabled = enabled
        if enabled:
            self._explain("enabled: run again")
        else:
            self._close("disabled: enable, then run again")

    def heartbeat_lost(self) -> None:
        """Close the gate: the policy has been silent for longer than the contract allows."""
        if self.gate.armed:
            self._close(f"heartbeat: none from the policy for {self._contract.heartbeat_timeout:g} s", fault=True)

    def rivals(self, names: str) -> None:
        """Follow which other nodes publish commands: any closes the gate, and keeps it closed while it is there.

        The middleware may tell of a publisher before it tells its node's name, so the reason follows too.
        """
        if names == self.gate.rivals:
            return
        self.gate.rivals = names
        if names and self.gate.armed:
            self._close(self.gate.rival_reason, fault=True)
        elif names and self.gate.reason.startswith("publisher:"):
            self.gate.reason = self.gate.rival_reason
            self._output.gate(self.gate.state)

    def hold(self) -> str:
        """Stop and hold; ends a release. Returns why the arm could not be commanded to hold; empty: it was."""
        self.gate.released = False
        if not self.gate.active:
            return "command_node is inactive and commands nothing; activate it first"
        if not self.safety.joints:
            self._close("hold: run again to move")
            return "nothing was commanded: the contract's safety action releases every joint"
        trouble = "" if self.gate.open or self.interface.is_velocity else self.joints.trouble(self._now())
        was_open = self.gate.open
        self._close("hold: run again to move")
        if not was_open and not trouble:
            self._hold_still()
        return trouble

    def release(self) -> None:
        """Close the gate and send nothing, not even the safety action, so that something else can move the arm."""
        self.gate.released = True
        self.gate.close("released: call ~/hold, then run again", self._now())
        self._forget_plan()
        self._output.gate(self.gate.state)

    # ---- what a pace adds ----

    @abstractmethod
    def _stop(self, *, was_open: bool, raised: bool) -> None:
        """Forget the plan and do the safety action; `raised`: a higher epoch asked for it."""

    @abstractmethod
    def _hold_still(self) -> None:
        """Stop an arm that was not commanded to move: position targets are the joints as they are measured."""

    def _send(self, tick: int, positions: NDArray[np.float64]) -> None:
        self._output.command(tick, self._rows_from(positions))

    def _rows_from(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return this tick's targets, and those behind them that the contract hands over with them."""
        count = self._handed_over - 1
        if self.gate.step_limit:
            count = min(count, self.gate.step_limit - self.steps)
        if count <= 0:
            return positions[None]
        return np.concatenate([positions[None], self.saturation.path(self.queue.ahead(count), positions)])

    def _send_safety(self, tick: int, rows: NDArray[np.float64]) -> None:
        if self.safety.joints:
            self._output.safety(tick, rows)

    def _miss(self, tick: int) -> None:
        """Note a tick of an open gate without a row to run."""
        self._out_of_rows = True
        self.late_ticks += not self._waits_between

    @abstractmethod
    def _may_still_send(self) -> bool:
        """Return whether the row that this tick has worked out may still be sent."""

    @abstractmethod
    def _is_stale(self, observation_stamp: int, horizon: int) -> bool:
        """Return whether an observation is too old for a chunk of `horizon` rows that answers it to run."""

    @abstractmethod
    def _wake(self) -> None:
        """React to an event that a waiting tick may have waited for."""

    @abstractmethod
    def _replacement_is_due(self) -> bool:
        """Return whether the staged chunk shall run from this tick on."""

    # ---- a tick ----

    def _run_tick(self, tick: int) -> None:
        """Open or replace where a chunk is due, run one row, report."""
        gate, queue = self.gate, self.queue
        if gate.open:
            trouble = self.joints.trouble(tick) or self._implausible()
            if trouble:
                self._close(f"joints: {trouble}", fault=True)
            else:
                self._look_whether_it_follows()
        due = queue.staged is not None and self._replacement_is_due()
        if due and self._opens(tick) and not queue.replace():
            self.dropped["late: all its rows are past"] += 1
        row = queue.take(tick) if gate.open else None
        ran = False
        if row is not None and self._commanded is not None:
            ran = self._run_row(tick, row, self._commanded)
        elif gate.open:
            self._miss(tick)
        self._report(tick, active=ran)
        if gate.open and 0 < gate.step_limit <= self.steps:
            self._close("step_limit")

    def _run_row(self, tick: int, row: NDArray[np.float64], before: NDArray[np.float64]) -> bool:
        """Send a row, as the limits let it follow the command `before`. Returns whether it could still be sent."""
        if self.joints.positions is not None:
            self.saturation.look(self.joints.positions)
        positions = self.saturation.apply(row, before)
        if not self._may_still_send():
            return False
        self._commanded = positions
        self._change = positions - before
        self._out_of_rows = False
        self.steps += 1
        self._send(tick, positions)
        return True

    def _opens(self, tick: int) -> bool:
        """Open the armed gate if the staged chunk begins where the arm is. Returns whether it is open."""
        if self.gate.open:
            return True
        trouble = self.joints.trouble(tick)
        if trouble or self.joints.positions is None:
            self.queue.clear()
            self.dropped["no fresh measured joints"] += 1
            self._explain(f"joints: {trouble}")
            return False
        measured = self.joints.positions
        refusal = self.interface.refusal(measured, self.queue.first_due())
        if refusal:
            self._close(f"start_tolerance: {refusal}", fault=True)
            return False
        self._commanded = self.interface.begin(measured)
        self._out_of_rows = False
        self._plausibility.begin(measured, self.joints.stamp)
        self.gate.pass_commands()
        self._output.gate(self.gate.state)
        return True

    def _look_whether_it_follows(self) -> None:
        measured, commanded = self.joints.positions, self._commanded
        if measured is None or commanded is None:
            return
        trouble = self._following.trouble(measured, commanded)
        if trouble:
            self._commanded = self._following.held(measured, commanded)
            self._change = np.zeros(len(commanded))
            self._close(f"following: {trouble}", fault=True)

    def _implausible(self) -> str:
        positions = self.joints.positions
        return "" if positions is None else self._plausibility.trouble(positions, self.joints.stamp)

    def _report(self, tick: int, *, active: bool, may_ask: bool = True) -> None:
        queue = self.queue
        infer = may_ask and self._needs_inference(active)
        if infer:
            self._asked_at = tick
        self._output.executed(
            ExecutedTick(
                tick, self.gate.epoch, active, queue.chunk_id, queue.cursor, queue.remaining, self.steps, infer
            )
        )

    def _needs_inference(self, active: bool) -> bool:
        if not self.gate.armed or self._asked_at is not None or self.queue.staged is not None:
            return False
        left = self.queue.remaining
        if 0 < self.gate.step_limit <= self.steps + left:
            return False
        if self._waits_between:
            return left == 0 and not active  # the arm has got to the last row when the next observation is taken
        return left <= self._action.threshold

    # ---- closing ----

    def _close(self, reason: str, *, fault: bool = False) -> None:
        was_open = self.gate.close(reason, self._now(), fault=fault)
        self._stop(was_open=was_open, raised=False)
        self._output.gate(self.gate.state)
        self._wake()

    def _forget_plan(self) -> None:
        self.queue.clear()
        self._asked_at = None
        self._newest_chunk = 0

    def _explain(self, reason: str) -> None:
        """Change the reason of a closed gate; a new number in the same complaint is not worth a message."""
        if self.gate.reason.partition(":")[0] != reason.partition(":")[0]:
            self.gate.reason = reason
            self._output.gate(self.gate.state)

    def _time_went_back(self, before: int, now: int) -> None:
        """Drop what belongs to a time that no longer is, and wait for a newer epoch."""
        if self.joints.stamp > now:
            self.joints.clear()
        self._close(f"time: went back by {(before - now) / 1e9:.3f} s", fault=True)
