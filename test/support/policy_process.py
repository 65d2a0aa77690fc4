# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""policy_node in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from waiting import wait

ROOT = Path(__file__).resolve().parents[2]


class Process:
    """A policy_node."""

    def __init__(self, log: Path, code: str = "", **parameters: object) -> None:
        """`code` runs instead of the module; it is to call its `main`."""
        self._log = log
        settings = [word for name, value in parameters.items() for word in ("-p", f"{name}:={_text(value)}")]
        start = ["-m", "flashrt_ros.node.policy_node"] if not code else ["-c", code]
        command = [sys.executable, *start, "--ros-args", *settings]
        with log.open("ab") as file:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def says(self, text: str, timeout: float = 40.0, after: int = 0) -> None:
        """Wait until it has printed a text behind its first `after` characters."""
        wait(
            lambda: text in self.output[after:] or self.process.poll() is not None,
            timeout,
            lambda: f"{text!r} in {self.output[after:]}",
        )
        assert text in self.output[after:], self.output

    def end(self) -> None:
        """End it, so that its peers see it leave."""
        self.process.terminate()
        try:
            self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'
