# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""An interrupt of a command is one line and an exit code."""

from __future__ import annotations

import argparse
import signal
from types import ModuleType

import pytest

from flashrt_ros.demo import interrupts
from flashrt_ros.tools import audit, capsule, check_checkpoint, check_contract, replay, tiny_checkpoint


def test_nohup_is_respected() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert interrupts.as_exit_code(lambda: signal.raise_signal(signal.SIGHUP) or 3)() == 3


@pytest.mark.parametrize(
    "tool", [audit, capsule, check_checkpoint, check_contract, replay, tiny_checkpoint], ids=lambda tool: tool.__name__
)
def test_an_interrupt_is_a_line(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for read in ("parse_args", "parse_intermixed_args"):
        monkeypatch.setattr(argparse.ArgumentParser, read, lambda *given: signal.raise_signal(signal.SIGINT))
    try:
        assert tool.main([]) == 130
    except KeyboardInterrupt:
        pytest.fail("a traceback")
    assert capsys.readouterr().err == "interrupted\n"
