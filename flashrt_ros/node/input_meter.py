# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How the messages of one topic come: how many, how often, how many were lost on the way, how many came late."""

from __future__ import annotations

import time
from collections.abc import Callable

_LARGEST_GAP = 10_000
"""Messages; a larger gap is another publisher, whose numbers have nothing to do with those before."""


class InputMeter:
    """Counts; its times are steady."""

    def __init__(self, deadline: float, now: Callable[[], float] = time.monotonic) -> None:
        """`deadline`: seconds that may lie between two messages; `now`: steady time, s."""
        self.delivered = 0
        self.dropped = 0
        """Messages that were sent and never came, told by gaps in the numbers that their publisher gives them."""
        self.late = 0
        """Messages that came longer than the deadline after the one before."""
        self._deadline = deadline
        self._now = now
        self._number: int | None = None
        self._came: float | None = None
        self._since = now()
        self._counted = 0

    def note(self, number: int | None) -> None:
        """Take a message with the number that its publisher gave it; None: the middleware does not tell."""
        now = self._now()
        if self._came is not None and now - self._came > self._deadline:
            self.late += 1
        if number is not None and self._number is not None:
            gap = number - self._number - 1
            self.dropped += gap if 0 < gap < _LARGEST_GAP else 0
        self._number, self._came = number, now
        self.delivered += 1

    def rate(self) -> float:
        """Return the messages a second since the call before."""
        now = self._now()
        elapsed = now - self._since
        count, self._since, self._counted = self.delivered - self._counted, now, self.delivered
        return count / elapsed if elapsed > 0 else 0.0
