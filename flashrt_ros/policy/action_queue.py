# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The chunk in execution, row by row, and the one that will replace it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Reversible, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

_REMEMBERED_TICKS = 4096


class Fault(StrEnum):
    """Why a chunk is unfit, whatever the time and the gate: the name under which it is counted."""

    JOINTS = "wrong joints"
    SHAPE = "wrong shape"
    RATE = "wrong rate"
    NOT_FINITE = "not finite"


class UnfitChunkError(ValueError):
    """A chunk of which no row may run."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of joint targets for consecutive ticks; row 0 belongs to the tick of the observation.

    `rows` is [horizon, joints] in the contract's joint order, in rad or m. `start` is the first row to run.
    `observation_stamp` is in ns. `exact` marks a chunk that was re-instated and not computed from a new observation.
    """

    epoch: int
    chunk_id: int
    observation_stamp: int
    rows: NDArray[np.float64]
    start: int
    exact: bool


def arrange_rows(
    joints: Sequence[str],
    period: int,
    *,
    names: Sequence[str],
    data: ArrayLike,
    horizon: int,
    start: int,
    dt: int,
) -> NDArray[np.float64]:
    """Return a chunk's rows [horizon, joints] in the order of `joints`, matched by name.

    Args:
        joints: the contract's action joints.
        period: the contract's time between two ticks, ns.
        names: the chunk's joints, in the order of its columns.
        data: the chunk's values, row-major.
        horizon: number of rows in `data`.
        start: first row to run.
        dt: the chunk's time between two rows, ns.

    Raises:
        UnfitChunkError: joints, shape or rate differ from the contract's, or a value is NaN or infinite.
    """
    if sorted(names) != sorted(joints):
        raise UnfitChunkError(Fault.JOINTS, f"joints {list(names)} are not the contract's {list(joints)}")
    flat = np.asarray(data, dtype=np.float64)
    if flat.size != horizon * len(joints):
        raise UnfitChunkError(Fault.SHAPE, f"{flat.size} values are not {horizon} rows of {len(joints)} joints")
    if not 0 <= start < horizon:
        raise UnfitChunkError(Fault.SHAPE, f"the first row to run, {start}, is not one of its {horizon} rows")
    if not math.isclose(dt, period, rel_tol=0.01):
        raise UnfitChunkError(Fault.RATE, f"rows are {dt / 1e9:g} s apart, the contract's ticks {period / 1e9:g} s")
    if not np.isfinite(flat).all():
        bad = names[int(np.flatnonzero(~np.isfinite(flat))[0]) % len(names)]
        raise UnfitChunkError(Fault.NOT_FINITE, f"joint '{bad}' has NaN or infinity")
    columns = [names.index(name) for name in joints]
    return np.ascontiguousarray(flat.reshape(horizon, len(joints))[:, columns])


def rows_since(ran: Reversible[int], observation_stamp: int, period: int) -> int:
    """Return how many of the newest ticks are not before that of an observation.

    Args:
        ran: stamps of the ticks that ran a row, ns, in their order; a clock that is set back makes some out of order.
        observation_stamp: ns.
        period: ns between two ticks.
    """
    first = observation_stamp - period // 2
    count = 0
    for tick in reversed(ran):
        if tick < first:
            break
        count += 1
    return count


class ActionQueue:
    """Runs one chunk row by row; a staged chunk replaces it at the row that its own observation makes due."""

    def __init__(self, period: int) -> None:
        """`period`: ns between two ticks."""
        self._period = period
        self._ran: deque[int] = deque(maxlen=_REMEMBERED_TICKS)
        self._running: Chunk | None = None
        self.staged: Chunk | None = None
        self.cursor = 0

    @property
    def chunk_id(self) -> int:
        """The chunk in execution; 0: none."""
        return self._running.chunk_id if self._running else 0

    @property
    def remaining(self) -> int:
        """Rows left of the chunk in execution."""
        return len(self._running.rows) - self.cursor if self._running else 0

    def clear(self) -> None:
        """Forget both chunks and the rows that ran."""
        self._ran.clear()
        self._running = None
        self.staged = None
        self.cursor = 0

    def stage(self, chunk: Chunk) -> None:
        """Keep `chunk` for the next `replace`, in the place of one that waits."""
        self.staged = chunk

    def rows_run_since(self, observation_stamp: int) -> int:
        """Return how many rows ran from the tick of an observation on, the tick nearest to its stamp included.

        Rows are counted, not time: a tick without a row (the chunk was late) leaves the arm where it was, so the plan
        goes on from there without a jump.
        """
        return rows_since(self._ran, observation_stamp, self._period)

    def replace(self) -> bool:
        """Run the staged chunk from the row that is due. False: all its rows are past, and it is dropped."""
        chunk, self.staged = self.staged, None
        if chunk is None:
            raise ValueError("no chunk is staged")
        due = chunk.start + self.rows_run_since(chunk.observation_stamp)
        if due >= len(chunk.rows):
            return False
        self._running, self.cursor = chunk, due
        return True

    def first_due(self) -> NDArray[np.float64]:
        """Return the staged chunk's row that would run first if nothing has run yet, [joints]."""
        if self.staged is None:
            raise ValueError("no chunk is staged")
        return self.staged.rows[self.staged.start]

    def ahead(self, count: int) -> NDArray[np.float64]:
        """Return the next rows, `count` at most, [rows, joints]; they stay in the queue."""
        if self._running is None:
            raise ValueError("no chunk is in execution")
        return self._running.rows[self.cursor : self.cursor + count]

    def take(self, tick: int) -> NDArray[np.float64] | None:
        """Return the next row [joints] for the tick at `tick` ns, or None where none is left."""
        if self._running is None or self.cursor >= len(self._running.rows):
            return None
        row: NDArray[np.float64] = self._running.rows[self.cursor]
        self.cursor += 1
        self._ran.append(tick)
        return row
