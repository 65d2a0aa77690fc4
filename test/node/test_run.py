# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What both nodes share: ending on signals, transitions that say why they failed, starting by themselves."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPT = '''
import os, signal, sys
from flashrt_ros.node.managed_node import ManagedNode
from flashrt_ros.node.run import run_node
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

class Slow(ManagedNode):
    """Configuring lasts until it is asked to stop, fails as told, or is over at once."""

    def configure(self):
        print("configuring", flush=True)
        how = os.environ["HOW"]
        if how == "wait" and self.stop.wait(60.0):
            raise FlashrtError(ErrorCode.CANCELED, "stopped while loading")
        if how == "refuse":
            raise FlashrtError(ErrorCode.BAD_CHECKPOINT, "no such weights")
        if how == "bug":
            raise ZeroDivisionError("a bug")

    def activate(self):
        print("activated", flush=True)
        if os.environ["HOW"] in ("crash", "crash under a thread"):
            self.create_timer(0.0, lambda: {}["a bug later"])

    def finish(self):
        return super().finish() and os.environ["HOW"] != "crash under a thread"

    def deactivate(self): print("deactivated", flush=True)
    def cleanup(self): print("cleaned up", flush=True)

class Impatient:
    """Sends another signal while the interpreter ends."""

    def __del__(self, kill=os.kill, process=os.getpid(), number=signal.SIGTERM):
        kill(process, number)

if os.environ["HOW"] == "impatient":
    impatient = Impatient()

sys.exit(run_node(lambda stop: Slow("slow", stop, [])))
'''


@pytest.fixture
def slow(start_node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    def start(how: str) -> Any:
        (tmp_path / "slow_node.py").write_text(SCRIPT)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setenv("HOW", how)
        return start_node("slow_node", autostart=True)

    return start


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_node_that_is_configuring(slow: Any, number: signal.Signals) -> None:
    process = slow("wait")
    process.says("configuring")
    process.signal(number)
    assert process.wait() == 0
    assert "Traceback" not in process.output
    assert "cleaned up" in process.output
    assert "activated" not in process.output


def test_a_second_signal_changes_nothing(slow: Any) -> None:
    process = slow("wait")
    process.says("configuring")
    process.signal(signal.SIGINT)
    process.signal(signal.SIGTERM)
    assert process.wait() == 0


def test_nor_does_one_that_comes_while_the_interpreter_ends(slow: Any) -> None:
    process = slow("impatient")
    process.says("activated")
    process.signal(signal.SIGINT)
    assert process.wait() == 0


def test_autostart_activates_and_the_end_undoes_both(slow: Any) -> None:
    process = slow("succeed")
    process.says("activated")
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    assert process.output.index("deactivated") < process.output.index("cleaned up")


@pytest.mark.parametrize(
    ("how", "says"),
    [("refuse", "cannot configure: BAD_CHECKPOINT: no such weights"), ("bug", "ZeroDivisionError: a bug")],
)
def test_a_failed_configure_says_why_and_the_node_lives(slow: Any, how: str, says: str) -> None:
    process = slow(how)
    process.says(says)
    process.says("cleaned up")
    assert process.process.poll() is None
    process.signal(signal.SIGINT)
    assert process.wait() == 0
    assert "activated" not in process.output


@pytest.mark.parametrize("how", ["crash", "crash under a thread"])
def test_a_bug_in_a_callback_is_told_and_ends_the_node_with_its_own_exit_code(slow: Any, how: str) -> None:
    process = slow(how)
    process.says("deactivated")
    assert process.wait() == 70
    assert "KeyError: 'a bug later'" in process.output
    assert process.output.index("a bug later") < process.output.index("deactivated")
