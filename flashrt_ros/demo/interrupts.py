# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a signal does to a program: it ends in order, with all that it started."""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec

INTERRUPTED = 130
"""The exit code of a program that a signal has ended, as a shell gives it for SIGINT."""

_P = ParamSpec("_P")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def raise_once() -> None:
    """Let the first SIGINT, SIGTERM or SIGHUP raise KeyboardInterrupt, and none disturb the end that follows."""
    for number in _SIGNALS:
        signal.signal(number, _interrupt)


def as_exit_code(main: Callable[_P, int]) -> Callable[_P, int]:
    """Decorate a program's `main`: a signal ends it as `raise_once` says, with one line on stderr and INTERRUPTED."""

    @functools.wraps(main)
    def run(*arguments: _P.args, **options: _P.kwargs) -> int:
        raise_once()
        try:
            return main(*arguments, **options)
        except (KeyboardInterrupt, Exception):  # what interrupts an extension at work becomes an error of its own
            if not _has_come():
                raise
            print("interrupted", file=sys.stderr)
            return INTERRUPTED

    return run


def _has_come() -> bool:
    """Whether a signal has come since `raise_once`."""
    return signal.getsignal(_SIGNALS[0]) == signal.SIG_IGN


def _interrupt(number: int, frame: FrameType | None) -> None:
    for ignored in _SIGNALS:
        signal.signal(ignored, signal.SIG_IGN)
    raise KeyboardInterrupt
