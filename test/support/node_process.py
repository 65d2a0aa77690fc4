# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A node of this package in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from waiting import wait

ROOT = Path(__file__).resolve().parents[2]


class NodeProcess:
    """A Python process whose output goes to a file, behind what is in it."""

    def __init__(self, log: Path, *arguments: str, patience: float = 40.0) -> None:
        """`arguments` of Python; `patience`: s to wait for what it is to print."""
        self._log = log
        self._patience = patience
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, *arguments], cwd=ROOT, stdout=file, stderr=subprocess.STDOUT
            )

    @property
    def output(self) -> str:
        """Everything that it printed."""
        return self._log.read_text(errors="replace")

    def signal(self, number: int) -> None:
        """Send a signal to this process alone."""
        self.process.send_signal(number)

    def wait(self, timeout: float = 10.0) -> int:
        """Return the exit code."""
        return self.process.wait(timeout)

    def says(self, text: str, timeout: float | None = None, after: int = 0) -> None:
        """Wait until it has printed a text behind its first `after` characters."""
        wait(
            lambda: text in self.output[after:] or self.process.poll() is not None,
            self._patience if timeout is None else timeout,
            lambda: f"{text!r} in {self.output[after:]}",
        )
        assert text in self.output[after:], self.output

    def kill(self) -> None:
        """Kill it, and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """End it where it still lives, so that its peers see it leave."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.kill()

    def end_well(self, timeout: float) -> None:
        """End it, unless it was killed; it must end well."""
        self.process.terminate()
        assert self.process.wait(timeout) in (0, -signal.SIGKILL), self.output


def settings(parameters: Mapping[str, object]) -> list[str]:
    """The words of a command line that set a node's parameters."""
    return [word for name, value in parameters.items() for word in ("-p", f"{name}:={_text(value)}")]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'
