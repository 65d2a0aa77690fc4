# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a signal does to a program: it ends in order, with all that it started."""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import ParamSpec

INTERRUPTED = 130
"""The exit code of a program that a signal has ended, as a shell gives it for SIGINT."""

_P = ParamSpec("_P")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DESTRUCTOR = 0.1  # s that one may go on once a signal has come in it


@dataclass(slots=True)
class _Delay:
    """How many blocks hold signals back, and the one that came meanwhile; 0: none did."""

    blocks: int = 0
    number: int = 0


_delay = _Delay()


def raise_once() -> None:
    """Let the first SIGINT, SIGTERM or SIGHUP raise KeyboardInterrupt, and none disturb the end that follows.

    A SIGHUP that is ignored, as nohup has it, stays so.
    """
    for number in _SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)
    sys.unraisablehook = _on_unraisable


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Have a signal wait for the end of this block, in which a program starts or ends what it must not lose sight of.

    Signals that the process has other handlers for than `raise_once` gave it do not wait.
    """
    _delay.blocks += 1
    try:
        yield
    finally:
        _delay.blocks -= 1
        if not _delay.blocks and _delay.number:
            number, _delay.number = _delay.number, 0
            signal.raise_signal(number)


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
    if _delay.blocks:
        _delay.number = number
        return
    for ignored in _SIGNALS:
        signal.signal(ignored, signal.SIG_IGN)
    raise KeyboardInterrupt


def _on_unraisable(what: sys.UnraisableHookArgs) -> None:
    """Raise in what runs behind a destructor, or a callback of garbage, the interrupt that it has swallowed."""
    if not isinstance(what.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(what)
        return
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, _DESTRUCTOR)
