# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Where the next chunk stands to the one in execution, for real-time chunking (Black et al., arXiv 2506.07339)."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from flashrt_ros.policy.action_queue import rows_since
from flashrt_ros.policy.contract import Contract

_REMEMBERED_TICKS = 4096
_REMEMBERED_LATENCIES = 10


@dataclass(frozen=True, slots=True)
class Continued:
    """The chunk in execution as the next one sees it.

    Attributes:
        chunk_id: as in ActionChunk.
        row: of the observation's instant.
        delay: rows from there on that will have been executed when the next chunk takes over.
    """

    chunk_id: int
    row: int
    delay: int


class Overlap:
    """Follows what command_node executes.

    As in its queue, row 0 of a chunk belongs to the tick of its observation, and rows are counted, not time. The delay
    is predicted as the paper does it: the most rows that ran during any of the newest inferences.

    Where both waited for a busy process, an observation may be newer than the ticks that have been told by then. Those
    between are taken to run a row each, a period apart: the chunk is to go on from where the arm is, and not was.
    """

    def __init__(self, period: int, fixed_delay: int | None = None) -> None:
        """`period`: ns between two ticks; `fixed_delay`: rows that always run before a chunk takes over."""
        self._period = period
        self._fixed_delay = fixed_delay
        self._latencies: deque[int] = deque(maxlen=_REMEMBERED_LATENCIES)
        self._ran: deque[int] = deque(maxlen=_REMEMBERED_TICKS)
        self._chunk_id = 0
        self._cursor = 0
        self._remaining = 0
        self._newest_tick = 0
        self._asked_behind: int | None = None
        """Rows that had run since its observation when the newest inference began; None: none is to be measured."""

    def restart(self) -> None:
        """An epoch begins, in which nothing has run; how long inferences take is still known."""
        self._ran.clear()
        self._chunk_id = self._cursor = self._remaining = 0
        self._asked_behind = None

    def tick(self, stamp: int, chunk_id: int, cursor: int, remaining: int, *, active: bool) -> None:
        """Take a tick; arguments as in Executed, `stamp` in ns."""
        if chunk_id != self._chunk_id:
            took_over = active and self._chunk_id != 0
            if took_over and self._asked_behind is not None:
                # A clock that is set back by less than a tick takes rows from the count, even those of the asking.
                self._latencies.append(max(0, cursor - 1 - self._asked_behind))
            self._chunk_id, self._asked_behind = chunk_id, None
        if active:
            self._ran.append(stamp)
        self._cursor, self._remaining, self._newest_tick = cursor, remaining, stamp

    def begin(self, observation_stamp: int, duration: float | None) -> Continued | None:
        """An inference begins; None where nothing is in execution that it could go on from.

        Args:
            observation_stamp: of what it answers, ns.
            duration: of the newest inference, s; stands for its rows until the first were counted. None: none was
                timed, and all rows that are left are taken to run meanwhile.
        """
        since = rows_since(self._ran, observation_stamp, self._period)
        self._asked_behind = since
        row = self._cursor - since + self._untold(observation_stamp)
        if not self._chunk_id or row < 0:
            return None
        if self._fixed_delay is not None:
            return Continued(self._chunk_id, row, self._fixed_delay)
        unmeasured = self._remaining if duration is None else math.ceil(duration * 1e9 / self._period)
        return Continued(self._chunk_id, row, since + max(self._latencies, default=unmeasured))

    def _untold(self, observation_stamp: int) -> int:
        """Return how many rows run before the tick of an observation in ticks that have not been told yet."""
        behind = observation_stamp - self._period // 2 - self._newest_tick
        return min(max(0, (behind - 1) // self._period), self._remaining)


def overlap_of(contract: Contract) -> Overlap | None:
    """What a contract's strategy asks for; None: its chunks are drawn freely. Lockstep has a delay of its own."""
    if contract.action.strategy != "rtc":
        return None
    return Overlap(contract.action.period, contract.lockstep.apply_after if contract.lockstep is not None else None)
