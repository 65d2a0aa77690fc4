# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Processes that end with the program that started them, and whose logs are files."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from flashrt_ros.demo import interrupts
from flashrt_ros.tools import ros_domain

_POLL_INTERVAL = 0.02  # s


class ProcessEndedError(Exception):
    """A process ended that should have gone on, or ended badly. `log` is its file."""

    def __init__(self, name: str, code: int, log: Path) -> None:
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        super().__init__(f"{name} {how}")
        self.log = log


class Processes:
    """Starts processes, each in a group of its own; leaving the context ends all groups."""

    def __init__(self, folder: Path, grace: float = 5.0) -> None:
        """`folder` gets one log a process; `grace`: seconds from SIGINT to SIGKILL."""
        self._folder = folder
        self._grace = grace
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start a process; its log is `name`.log."""
        with self.log(name).open("wb") as log, interrupts.held_back():
            # A group of its own: Ctrl-C reaches this program alone, which then ends the others in order.
            self._running[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=ros_domain.descriptors(),
            )

    def log(self, name: str) -> Path:
        """The log of a process."""
        return self._folder / f"{name}.log"

    def finished(self, name: str) -> bool:
        """Return whether a process has ended well.

        Raises:
            ProcessEndedError: it ended with another exit code than 0.
        """
        code = self._running[name].poll()
        if code is None:
            return False
        self._take_away(name)
        if code:
            raise ProcessEndedError(name, code, self.log(name))
        return True

    def pid(self, name: str) -> int:
        """The id of a running process."""
        return self._running[name].pid

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a running process and its group."""
        _signal(self._running[name], number)

    def check(self) -> None:
        """Raise ProcessEndedError if one has ended."""
        for name, process in self._running.items():
            code = process.poll()
            if code is not None:
                raise ProcessEndedError(name, code, self.log(name))

    def stop(self) -> list[ProcessEndedError]:
        """End all, the newest first asked; what does not go is killed. Returns those that did not end with 0."""
        with interrupts.held_back():
            for process in reversed(self._running.values()):
                _signal(process, signal.SIGINT)
            deadline = time.monotonic() + self._grace
            while time.monotonic() < deadline and any(process.poll() is None for process in self._running.values()):
                time.sleep(_POLL_INTERVAL)
            ended = {name: self._take_away(name) for name in list(self._running)}
        return [ProcessEndedError(name, code, self.log(name)) for name, code in ended.items() if code]

    def _take_away(self, name: str) -> int:
        """Kill what is left of a process and of its group, and return its exit code."""
        process = self._running.pop(name)
        _signal(process, signal.SIGKILL)
        return process.wait()


def tail(log: Path, lines: int = 20) -> str:
    """Return the last lines of a log."""
    if not log.exists():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # none of the group is left
        os.killpg(process.pid, number)
