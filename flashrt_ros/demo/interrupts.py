# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a signal does to a program of the demo."""

from __future__ import annotations

import signal
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def raise_once() -> None:
    """Let the first SIGINT, SIGTERM or SIGHUP raise KeyboardInterrupt, and none disturb the end that follows."""
    for number in _SIGNALS:
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    for ignored in _SIGNALS:
        signal.signal(ignored, signal.SIG_IGN)
    raise KeyboardInterrupt
