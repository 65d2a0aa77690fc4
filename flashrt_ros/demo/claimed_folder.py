# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A folder for the files of one run: two at once would write into each other's logs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

_REFUSED = 2


class FolderInUseError(Exception):
    """Another run has its files there."""


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Make a folder if need be, and let no other run claim it until the block, or this process, ends.

    Raises:
        FolderInUseError: another run has claimed it.
        OSError: it cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            trouble = f"{folder}: another run has its files there; wait for its end, or name another folder"
            raise FolderInUseError(trouble) from error
        yield
    finally:
        os.close(descriptor)


def alone_in(folder: Path, program: str, work: Callable[[], int]) -> int:
    """Return the exit code of a program that works in a folder; where another run has claimed it, a line says so."""
    try:
        with claimed(folder):
            return work()
    except FolderInUseError as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        return _REFUSED
