# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Run slow commands with their output in a log and their progress on the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

TAIL = 25
_started: float = time.monotonic()


class StepError(Exception):
    """A step did not succeed; the message says which and shows the end of its output."""


def say(text: str) -> None:
    """Print a line for the person who waits."""
    print(f"[run] {text}", file=sys.stderr, flush=True)


@contextmanager
def step(number: int, total: int, title: str) -> Iterator[None]:
    """Announce a step and how long it took."""
    global _started
    _started = time.monotonic()
    say(f"step {number} of {total}: {title}")
    yield
    say(f"step {number} of {total}: done in {time.monotonic() - _started:.0f} s")


def answer(command: Sequence[str]) -> str:
    """What a quick command prints; empty when it fails or does not exist."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def call(command: Sequence[str], name: str, path: Sequence[Path] = ()) -> None:
    """Run a command, show the newest line of its output every few seconds, keep all of it in a log.

    Raises:
        StepError: it exited with another code than 0.
    """
    log = Path(tempfile.gettempdir()) / f"flashrt_ros_{os.getuid()}_{os.getpid()}_{name}.log"
    env = os.environ | {"PATH": os.pathsep.join([*map(str, path), os.environ.get("PATH", os.defpath)])}
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env)
        try:
            _wait(process, log)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if process.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-TAIL:])
        raise StepError(
            f"{name} failed with exit code {process.returncode}: {' '.join(command)}\n{tail}\nall of it: {log}"
        )
    log.unlink()


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    terminal = sys.stderr.isatty()
    period = 1.0 if terminal else 15.0
    while True:
        try:
            process.wait(period)
            break
        except subprocess.TimeoutExpired:
            lines = log.read_text(errors="replace").split("\n")
            newest = next((line.strip() for line in reversed(lines) if line.strip()), "")
            text = f"      {time.monotonic() - _started:4.0f} s  {newest}"[:110]
            print(f"\r\033[K{text}" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True)
    if terminal:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
