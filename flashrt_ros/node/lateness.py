# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How late a timer's ticks are."""

from __future__ import annotations

from collections import deque

import numpy as np

_REMEMBERED_TICKS = 1000


class Lateness:
    """Lateness of the newest ticks, and the ticks that were lost altogether."""

    def __init__(self, period: int) -> None:
        """`period`: ns."""
        self._period = period
        self._due: int | None = None
        self._late: deque[int] = deque(maxlen=_REMEMBERED_TICKS)
        self.lost = 0

    def add(self, now: int, until_next: int) -> None:
        """Note that a tick began at `now` (ns), and that the timer is due again after `until_next` ns."""
        due, self._due = self._due, now + until_next
        if due is None or now < due - self._period:
            return  # the first tick, or the clock was set back
        self._late.append(max(0, now - due))
        self.lost += max(0, round((self._due - due) / self._period) - 1)

    def percentiles(self) -> tuple[float, float, float]:
        """Return the median, the 99th percentile and the largest lateness in s; zeros where no tick was seen."""
        if not self._late:
            return 0.0, 0.0, 0.0
        middle, tail, most = np.percentile(np.array(self._late), (50, 99, 100)) * 1e-9
        return float(middle), float(tail), float(most)
