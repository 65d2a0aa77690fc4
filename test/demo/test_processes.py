# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from child_processes import lives

from flashrt_ros.demo import interrupts
from flashrt_ros.demo.processes import ProcessEndedError, Processes, tail

PATIENCE = 10.0  # s
TELL = "import os, signal, subprocess, sys, time; print('pid', os.getpid(), flush=True); "
WAIT = "time.sleep(60)"
STUBBORN = "signal.signal(signal.SIGINT, signal.SIG_IGN); print('ready', flush=True); "
POLITE = "signal.signal(signal.SIGINT, lambda *_: sys.exit(0)); print('ready', flush=True); "


def python(code: str) -> list[str]:
    return [sys.executable, "-c", TELL + code]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def pids(log: Path) -> list[int]:
    return [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("pid ")]


def test_leaving_ends_processes_and_what_they_started(tmp_path: Path) -> None:
    child = "subprocess.Popen([sys.executable, '-c', \"import os, time; print('pid', os.getpid(), flush=True); " + WAIT
    with Processes(tmp_path) as processes:
        processes.start("parent", python(child + '"]); ' + WAIT))
        until(lambda: len(pids(tmp_path / "parent.log")) == 2)
        started = pids(tmp_path / "parent.log")
        assert all(lives(pid) for pid in started)
    until(lambda: not any(lives(pid) for pid in started))


def test_an_exception_ends_them_too(tmp_path: Path) -> None:
    def interrupted() -> None:
        with Processes(tmp_path) as processes:
            processes.start("one", python(WAIT))
            until(lambda: bool(pids(tmp_path / "one.log")))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not lives(pids(tmp_path / "one.log")[0])


def test_a_signal_while_one_starts_ends_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = subprocess.Popen, []

    def interrupted(*command: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(start(*command, **options))
        signal.raise_signal(signal.SIGINT)
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    interrupts.raise_once()
    with pytest.raises(KeyboardInterrupt), Processes(tmp_path) as processes:
        processes.start("one", python(WAIT))
    assert started[0].poll() is not None


def test_a_signal_while_they_end_spares_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupts.raise_once()
    processes = Processes(tmp_path, grace=0.2)
    processes.start("stubborn", python(STUBBORN + WAIT))
    until(lambda: "ready" in processes.log("stubborn").read_text())
    monkeypatch.setattr(time, "sleep", lambda seconds: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        processes.stop()
    assert not lives(pids(tmp_path / "stubborn.log")[0])


def test_what_ignores_the_signal_is_killed_and_told(tmp_path: Path) -> None:
    with Processes(tmp_path, grace=0.2) as processes:
        processes.start("stubborn", python(STUBBORN + WAIT))
        until(lambda: "ready" in processes.log("stubborn").read_text())
        (bad,) = processes.stop()
    assert str(bad) == "stubborn was killed by SIGKILL"
    assert not lives(pids(bad.log)[0])


def test_what_follows_the_signal_is_not_told(tmp_path: Path) -> None:
    with Processes(tmp_path, grace=PATIENCE) as processes:
        processes.start("polite", python(POLITE + WAIT))
        until(lambda: "ready" in processes.log("polite").read_text())
        assert processes.stop() == []


def test_one_that_ends_is_noticed_with_its_log(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("one", python(WAIT))
        processes.check()
        processes.start("two", python("print('no contract'); sys.exit(3)"))
        with pytest.raises(ProcessEndedError, match="two ended with exit code 3") as raised:
            until(lambda: bool(processes.check()))
        assert "no contract" in tail(raised.value.log)


def test_one_that_shall_end_is_waited_for(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("good", python("sys.exit(0)"))
        until(lambda: processes.finished("good"))
        processes.start("bad", python("sys.exit(1)"))
        with pytest.raises(ProcessEndedError):
            until(lambda: processes.finished("bad"))
        assert processes.stop() == []


def test_tail_is_the_end(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert tail(log) == ""
    log.write_text("\n".join(str(number) for number in range(9)))
    assert tail(log, 2) == "7\n8"
