# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How long something took, again and again."""

from __future__ import annotations

from collections import deque

import numpy as np

_REMEMBERED = 2000


class Durations:
    """The newest durations, in seconds."""

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        """`remembered`: how many are kept."""
        self.count = 0
        self.last = 0.0
        self._times: deque[float] = deque(maxlen=remembered)

    def __len__(self) -> int:
        return len(self._times)

    def add(self, seconds: float) -> None:
        """Note one."""
        self.count += 1
        self.last = seconds
        self._times.append(seconds)

    @property
    def longest(self) -> float:
        """The longest of the newest; 0 where there is none."""
        return max(self._times, default=0.0)

    def percentiles(self) -> tuple[float, float]:
        """Return the median and the 99th percentile; zeros where there is none."""
        if not self._times:
            return 0.0, 0.0
        middle, tail = np.percentile(np.array(self._times), (50, 99))
        return float(middle), float(tail)
