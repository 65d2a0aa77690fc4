# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Control at a fixed rate: ticks come from a timer on ROS time, and the safety action begins at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flashrt_ros.policy.contract import Contract
from flashrt_ros.policy.controller import Controller, Output
from flashrt_ros.policy.gate import Gate


class TimedController(Controller):
    """Control of a robot that moves on whether or not a command comes."""

    def __init__(
        self,
        contract: Contract,
        output: Output,
        gate: Gate,
        now: Callable[[], int],
        look_for_stop: Callable[[], None],
    ) -> None:
        """`look_for_stop` is called right before a command is sent; it calls `stopped` if this process has been."""
        super().__init__(contract, output, gate, now)
        self._look_for_stop = look_for_stop
        self.stopping = False
        """Whether a hold has still to bring the joints to rest, tick by tick."""
        self._last_tick: int | None = None
        self._last_target: int | None = None
        self._moving = False
        self._patience = round(contract.heartbeat_timeout * 1e9)
        self._max_age = round(contract.observation.max_age * 1e9)
        self._longest_gap = max(self.joints.max_age, 2 * self._action.period)

    def tick(self) -> None:
        """Do one control tick."""
        now = self._now()
        if self._last_tick is not None and now < self._last_tick - self._action.period:
            self._time_went_back(self._last_tick, now)
        elif self._missed_ticks(now):
            if self.gate.open:
                self._close(f"time: no tick for {(now - (self._last_tick or 0)) / 1e9:.3f} s", fault=True)
            elif self.stopping:
                self._hold_commanded(now)
        self._last_tick = now
        if self._asked_at is not None and now - self._asked_at > self._patience:
            self._asked_at = None  # the request was lost, or ended in an error there: ask again
            self.latency.restart()
            self.late_chunks += self._waits_between and self.gate.open
        self._run_tick(now)
        if self._last_target != now:
            self.brake(now)

    def brake(self, tick: int) -> None:
        """Send the next command of a hold that has not brought the joints to rest yet; `tick` in ns."""
        self._look_for_stop()
        braking = self.interface.braking
        if not self.stopping or self._commanded is None or braking is None:
            return
        rows = braking.rows(self._commanded, self._change, self._handed_over)
        self._commanded, self._change = rows[0], rows[0] - self._commanded
        self.stopping = not braking.rests(self._commanded, self._change)
        self._send_safety(tick, rows)

    def release(self) -> None:
        """Send nothing more."""
        self.stopping = False
        super().release()

    def stopped(self, seconds: float) -> None:
        """Close the gate: this process did nothing for some time, of which ROS time need not know yet.

        Where the arm is now is not known then, so position targets are not sent.
        """
        interrupted, self.stopping = self.stopping, False
        self._commanded = self.interface.still(None)
        if self.gate.open:
            self._close(f"time: stopped for {seconds:.3f} s", fault=True)
        elif interrupted:
            self._hold_commanded(self._now())

    def measured(self, names: Sequence[str], positions: ArrayLike, stamp: int) -> None:
        """Take measured joints, unless newer ones have come; `stamp` in ns.

        One that is older by more than `max_age` was not overtaken on its way: it is from a clock that was set back, and
        shutting it out would shut out all that follow.
        """
        if self.joints.stamp - self.joints.max_age <= stamp < self.joints.stamp:
            self.dropped["older joints"] += 1
            return
        super().measured(names, positions, stamp)

    def _stop(self, *, was_open: bool, raised: bool) -> None:
        self._forget_plan()
        if was_open:
            self._hold_commanded(self._now())

    def _hold_still(self) -> None:
        now = self._now()
        still = self.interface.still(None if self.joints.trouble(now) else self.joints.positions)
        if still is not None and not self.stopping:
            self.holds += 1
            self._send_safety(now, still[None])

    def _hold_commanded(self, tick: int) -> None:
        """Bring the joints to rest from the last command.

        With limits of acceleration, tick by tick from the next one on; without, in this tick.
        After missed ticks the arm may be anywhere, and the last command is an old action: position targets are then the
        joints as they are measured, and none are sent where that is not known.
        """
        self._look_for_stop()
        self._moving = self.stopping = False
        if self._missed_ticks(tick):
            self._hold_still()
        elif self._commanded is not None:
            self.holds += 1
            self.stopping = self.interface.braking is not None and bool(self.safety.joints)
            if not self.stopping:
                self._send_safety(tick, self.interface.rest(self._commanded)[None])

    def _missed_ticks(self, now: int) -> bool:
        """Return whether this process was stopped, or time leapt: what it knows is of a world that is no more."""
        return self._last_tick is not None and now - self._last_tick > self._longest_gap

    def _send(self, tick: int, positions: NDArray[np.float64]) -> None:
        self._moving, self.stopping, self._last_target = True, False, tick
        super()._send(tick, positions)

    def _miss(self, tick: int) -> None:
        """Hold, once, until the late chunk comes."""
        super()._miss(tick)
        if self._moving:
            self.late_chunks += not self._waits_between
            self._hold_commanded(tick)

    def _may_still_send(self) -> bool:
        self._look_for_stop()
        return self.gate.open

    def _is_stale(self, observation_stamp: int, horizon: int) -> bool:
        """Bound the age of an observation by what the contract allows it and its answer.

        An observation may be `max_age` old when it is made, and an inference that takes longer than
        `heartbeat_timeout` counts as lost. A chunk that answers an older one shows a world that is no more, so it never
        opens the gate. While rows run, the arm moves along the plan that was observed, which is why a long chunk may
        come as late as it has rows to cover.
        """
        allowed = self._patience
        if self.gate.open:
            allowed = max(allowed, horizon * self._action.period)
        return self._now() - observation_stamp > self._max_age + allowed

    def _wake(self) -> None:
        """Nothing waits: the next tick comes by itself."""

    def _replacement_is_due(self) -> bool:
        """A chunk opens no gate before the arm is at rest."""
        return self.gate.open or not self.stopping
