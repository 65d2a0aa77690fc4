# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Control in simulated time that waits for commands: the same chunks give the same commands, however long they take.

The robot shows an instant (clock, joints, images) and waits for the command stamped with it. A tick that cannot be done
yet is kept, and every event looks at it again; nothing blocks. A closed gate sends one safety action for each closing
and each raised epoch, so that an instant after it can be observed, and then time stands still. What is held is the last
command where the gate was open, else the joints as measured: a function of the world alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.policy.contract import Contract
from flashrt_ros.policy.controller import Controller, Output
from flashrt_ros.policy.gate import Gate


class LockstepController(Controller):
    """Ticks come from /clock, each done when the joints of its instant, and a chunk where one is due, have come."""

    def __init__(
        self, contract: Contract, output: Output, gate: Gate, now: Callable[[], int], apply_after: int
    ) -> None:
        """`now` returns the newest clock value; a chunk applies `apply_after` rows after its observation's tick."""
        super().__init__(contract, output, gate, now)
        self._apply_after = apply_after
        self._waiting: int | None = None
        self._shown: int | None = None
        self._holds: deque[NDArray[np.float64] | None] = deque()
        self._sent: tuple[int, NDArray[np.float64], bool] | None = None

    def clock(self, stamp: int) -> None:
        """Take an instant of simulated time, ns. The robot may repeat one whose command it has not seen."""
        if stamp == self._shown:
            self._repeat(stamp)
            return
        if self._shown is not None and stamp < self._shown:
            self._time_went_back(self._shown, stamp)
        self._shown = self._waiting = stamp
        self._wake()

    def release(self) -> None:
        """Send nothing more; simulated time stands still."""
        self._holds.clear()
        super().release()

    def _stop(self, *, was_open: bool, raised: bool) -> None:
        self._forget_plan()
        if was_open:
            self._holds.append(self._commanded)
        elif raised and not self.gate.released and (self.gate.active or not self._holds):
            # While inactive nothing is sent, and one instant is enough to observe after the activation.
            self._holds.append(None)

    def _time_went_back(self, before: int, now: int) -> None:
        self._commanded = None  # the last command belongs to another state of the world
        super()._time_went_back(before, now)

    def _hold_still(self) -> None:
        self._holds.append(None)
        self._wake()

    def _may_still_send(self) -> bool:
        """Time waits for the command."""
        return True

    def _is_stale(self, observation_stamp: int, horizon: int) -> bool:
        """Time waits for the answer: age is the number of rows run since, which the queue bounds."""
        return False

    def _replacement_is_due(self) -> bool:
        staged = self.queue.staged
        return staged is not None and (
            self.queue.remaining == 0 or self.queue.rows_run_since(staged.observation_stamp) >= self._apply_after
        )

    def _send(self, tick: int, positions: NDArray[np.float64]) -> None:
        self._waiting = None
        self._sent = (tick, positions, False)
        super()._send(tick, positions)

    def _send_safety(self, tick: int, rows: NDArray[np.float64]) -> None:
        self._waiting = None
        self._sent = (tick, rows[0], True)
        self.holds += 1
        super()._send_safety(tick, rows)

    def _repeat(self, stamp: int) -> None:
        if self._sent is None:
            return
        tick, positions, safety = self._sent
        if tick != stamp:
            return
        if safety:
            self._output.safety(tick, positions[None])
        elif self.gate.open:
            self._output.command(tick, positions[None])

    def _wake(self) -> None:
        tick, measured = self._waiting, self.joints.positions
        if tick is None or measured is None or self.joints.stamp < tick or not self.gate.active:
            return
        if self._holds:
            held = self._holds.popleft()
            self._send_safety(tick, (measured if held is None else held)[None])
            self._report(tick, active=False, may_ask=False)  # the instant after the last hold is the one to observe
        elif self.gate.armed:
            if not self._chunk_is_missing():
                self._run_tick(tick)
            elif self._asked_at is None:
                self._report(tick, active=False)

    def _chunk_is_missing(self) -> bool:
        """Return whether this tick must wait for a chunk: nothing is left to run, or the one asked for is due."""
        if self.queue.staged is not None:
            return False
        if self.queue.remaining == 0:
            return True
        return self._asked_at is not None and self.queue.rows_run_since(self._asked_at) >= self._apply_after
