# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A benchmark ends with all that it started."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def children(process: int) -> dict[int, str]:
    """Process ids and command lines of what a process started."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            if parent == process:
                found[int(status.parent.name)] = (status.parent / "cmdline").read_bytes().decode()
        except OSError:
            continue  # it has ended
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_its_processes_too(root: Path, number: signal.Signals) -> None:
    pytest.importorskip("flashrt_interfaces")
    command = [sys.executable, "-m", "flashrt_ros.tools.bench", "ros"]
    bench = subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60.0
    while not any("policy_node" in line for line in children(bench.pid).values()):
        assert bench.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    started = children(bench.pid)
    bench.send_signal(number)
    assert bench.wait(60.0) == 130
    assert len(started) >= 4
    assert not [line for process, line in started.items() if Path(f"/proc/{process}").exists()]
