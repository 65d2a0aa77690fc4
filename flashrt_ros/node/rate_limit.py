# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How often a verb may be asked for."""

from __future__ import annotations

import time
from collections.abc import Callable

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

_BURST = 2.0
"""Seconds of calls that may come at once after a pause."""


class RateLimit:
    """A token bucket for each verb, so that a client that calls one in a loop leaves the others their time."""

    def __init__(self, rate: float, now: Callable[[], float] = time.monotonic) -> None:
        """`rate`: calls a second of each verb; `now`: steady time, s."""
        self._rate = rate
        self._room = max(1.0, rate * _BURST)
        self._now = now
        self._verbs: dict[str, tuple[float, float]] = {}
        self.refused = 0

    def take(self, verb: str) -> None:
        """Count a call; BUSY where the verb was called too often."""
        now = self._now()
        tokens, before = self._verbs.get(verb, (self._room, now))
        tokens = min(self._room, tokens + (now - before) * self._rate)
        if tokens < 1.0:
            self._verbs[verb] = tokens, now
            self.refused += 1
            raise FlashrtError(
                ErrorCode.BUSY,
                f"{verb} is called more than {self._rate:g} times a second; try again in "
                f"{(1.0 - tokens) / self._rate:.3f} s, or raise the parameter rate_limit",
            )
        self._verbs[verb] = tokens - 1.0, now
