# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A signal ends a program in order, whatever it is doing."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import signal, sys, time
from flashrt_ros.demo import interrupts

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run below nohup

class Swallows:
    def __del__(self):
        print("begun", flush=True)
        time.sleep(60.0)

@interrupts.as_exit_code
def main(code):
    try:
        Swallows() if code == -3 else print("begun", flush=True)
        for _ in range(600 if code < 0 else 0):
            time.sleep(0.1)  # a signal that comes just before a sleep is seen behind it
    except KeyboardInterrupt as interrupt:
        raise RuntimeError("as an extension makes of it") if code == -2 else interrupt
    finally:
        time.sleep(0.2)
        print("in order", flush=True)
    return code

sys.exit(main(eval(sys.argv[1])))
"""


def start(code: int | str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, repr(code)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=str)
@pytest.mark.parametrize("code", [-1, -2, -3], ids=["whole", "as another error", "swallowed by a destructor"])
def test_a_signal_is_one_line_and_an_exit_code(number: signal.Signals, code: int) -> None:
    with start(code) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        program.send_signal(number)
        program.send_signal(number)
        said, trouble = program.communicate(timeout=30.0)
    assert (program.returncode, said, trouble) == (130, "in order\n", "interrupted\n")


def test_an_error_without_a_signal_is_told() -> None:
    with start("no number") as program:
        _, trouble = program.communicate(timeout=30.0)
    assert program.returncode == 1
    assert "TypeError" in trouble


def test_the_exit_code_is_the_programs_own_otherwise() -> None:
    with start(3) as program:
        said, trouble = program.communicate(timeout=30.0)
    assert (program.returncode, said, trouble) == (3, "begun\nin order\n", "")
