# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The benchmark over real processes, as long as it takes to see that everything is measured."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("flashrt_interfaces")


MODULE = ["-m", "flashrt_ros.tools.bench"]
LOOKS_FOR_NO_GPU = """
import sys
from flashrt_ros.tools.bench import __main__, ros

ros.choose = lambda device: None
sys.exit(__main__.main())
"""


def bench(root: Path, *arguments: str, python: Sequence[str] = MODULE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *python, "ros", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=200.0, check=False)


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")


def test_too_short_a_time_is_refused(root: Path) -> None:
    done = bench(root, "--seconds", "1")
    assert done.returncode == 2
    assert "give 2 or more" in done.stderr


def test_a_gpu_that_cannot_be_had_is_refused_in_a_line(root: Path, without_gpu: None) -> None:
    done = bench(root, "--device", "cuda")
    assert done.returncode == 2
    assert done.stdout.startswith("bench ros: DEVICE: ")
    assert done.stdout.count("\n") == 1


def test_a_policy_that_cannot_be_configured_is_told_with_its_reason(root: Path, without_gpu: None) -> None:
    done = bench(root, "--device", "cuda", python=["-c", LOOKS_FOR_NO_GPU])
    assert done.returncode == 1
    assert "cannot configure: BAD_REQUEST" in done.stdout
    assert "nothing was measured: policy could not be configured" in done.stdout


def test_everything_is_measured_and_the_exit_code_tells_whether_it_holds(root: Path, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = bench(root, "--seconds", "3", "--device", "cpu", "--json", str(result))
    assert result.exists(), done.stdout + done.stderr
    said = json.loads(result.read_text())
    assert done.returncode == (0 if all(verdict["holds"] for verdict in said["verdicts"]) else 1)
    figures = said["figures"]
    assert all(min(figures[name]) > 0 for name in ("snapshot", "listing", "sample", "restore", "closing"))
    assert len(figures["snapshot"]) > 10
    assert figures["device"].startswith("cpu, ")
    assert figures["inferences"] > 0
    assert figures["stage"] > 0
    assert 0 <= figures["lacking"] < 1, "no more frames can be delivered than were published"
    assert figures["policy_cpu"] > 0
    assert figures["command_cpu"] > 0
    for spread in (figures["sleeper"], figures["control"]):
        assert 0 < spread["p50"] <= spread["p99"] <= spread["max"]
