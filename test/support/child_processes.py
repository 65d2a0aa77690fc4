# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a program that is tested has started."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

_PAUSE = 0.05  # s; looking through all processes takes some


def lives(process: int) -> bool:
    """Whether it runs; one that waits to be reaped by whoever adopted it does not."""
    try:
        return _state_and_parent(process)[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it was gone before, or between opening and reading
        return False


def children(parent: int) -> dict[int, str]:
    """Command lines of the processes that one has started, by id."""
    found = {}
    for process in (int(path.name) for path in Path("/proc").glob("[0-9]*")):
        try:
            state, started_by = _state_and_parent(process)
            command = Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if started_by == parent and state != "Z":
            found[process] = command
    return found


def until_it_runs(module: str, program: subprocess.Popen[str], seconds: float) -> dict[int, str]:
    """Wait until a program has started a module; return all that it has started by then, as `children`."""
    deadline = time.monotonic() + seconds
    while module not in " ".join((found := children(program.pid)).values()):
        assert time.monotonic() < deadline
        assert program.poll() is None, program.communicate()
        time.sleep(_PAUSE)
    return found


def _state_and_parent(process: int) -> tuple[str, int]:
    state, parent, *_ = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return state, int(parent)
