# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What is refused is a line, and a benchmark ends with all that it started."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from flashrt_ros.policy import loading
from flashrt_ros.policy.device import Device
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.tools.bench import pi0, stages
from flashrt_ros.tools.bench.__main__ import main


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_a_signal_ends_its_processes_too(number: signal.Signals, interrupt_nodes: Callable[..., list[str]]) -> None:
    pytest.importorskip("flashrt_interfaces")
    assert len(interrupt_nodes(number, "flashrt_ros.tools.bench", "ros")) >= 4


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["capsule", "--checkpoint", "/nope"], "bench capsule: BAD_CHECKPOINT: checkpoint /nope: no such folder"),
        (["capsule", "--device", "cuda"], "bench capsule: BAD_REQUEST: device 'cuda'"),
        (["stages", "--device", "cuda"], "bench stages: BAD_REQUEST: device 'cuda'"),
        (["pi0", "--size", "tiny", "--device", "cuda"], "bench pi0: BAD_REQUEST: device 'cuda'"),
    ],
)
def test_what_is_refused_is_told_in_a_line(
    arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_gpu(name: str) -> Device:
        raise FlashrtError(ErrorCode.BAD_REQUEST, f"device {name!r}: there is none")

    if "cuda" in arguments:
        for module in (loading, pi0, stages):
            monkeypatch.setattr(module, "choose", no_gpu)
    monkeypatch.setattr("sys.argv", ["bench", *arguments])
    assert main() == 2
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(told)


@pytest.mark.parametrize(
    ("bench", "lengths", "repeats"), [("capsule", "256 1024 2048 4096", 15), ("stages", "2048 4096 8192 16384", 100)]
)
def test_the_help_tells_the_defaults(
    bench: str, lengths: str, repeats: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", bench, "--help"])
    with pytest.raises(SystemExit):
        main()
    told = " ".join(capsys.readouterr().out.split())
    assert f"(default: {lengths})" in told
    assert f"(default: {repeats})" in told
