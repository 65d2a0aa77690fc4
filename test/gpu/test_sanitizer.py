# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Every kernel under NVIDIA's compute-sanitizer: nothing out of bounds, no race, nothing read before it is written."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SANITIZER = shutil.which("compute-sanitizer")
SECONDS = 900.0
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
TORCHS = ("at::", "at_cuda_detail::", "cub::", "cutlass::", "cudnn_", "nvjet_")
"""Kernels of torch and its libraries, which compute what ours are compared with, and which the tools do not find
clean."""

OURS = ("--kernel-name-exclude", "kns=_ZN")
"""A C++ kernel's mangled name begins so; ours have plain names."""

OPTIONS = {
    "memcheck": OURS,
    "racecheck": OURS,
    # It has to see who writes what; that torch copies padding, which nobody wrote, is no error.
    "initcheck": ("--check-api-memory-access", "no"),
}
LARGEST = 300
"""Tests with a greater number among their parameters take the tools minutes."""

_OTHERS = re.compile("test_(backend|elsewhere|node|pi0|policy|sanitizer|speech)")
"""Tests of more than operations."""

_NUMBER = re.compile(r"\d+")
_PLACE = re.compile(r"^=========.*?(?<!point) at (?:0x[0-9a-f]+ in )?(?:void )?([\w:<].*)$", re.MULTILINE)


@pytest.mark.skipif(SANITIZER is None, reason="compute-sanitizer is not installed")
@pytest.mark.parametrize("tool", OPTIONS)
def test_every_kernel_is_clean(tool: str, root: Path) -> None:
    options = ["--tool", tool, "--target-processes", "all", "--report-api-errors", "no", "--show-backtrace", "no"]
    command = [str(SANITIZER), *options, *OPTIONS[tool], *PYTEST, "-x", "--numprocesses", "6", *_small_tests(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=root)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "SUMMARY" in done.stdout, "the tool did not get to its end"
    ours = [place for place in _PLACE.findall(done.stdout) if not place.startswith(TORCHS)]
    assert not ours, ours[:20]


def _small_tests(root: Path) -> list[str]:
    files = [str(path) for path in (root / "test" / "gpu").glob("test_*.py")]
    command = [*PYTEST, "--collect-only", *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True, cwd=root)
    operations = [line for line in done.stdout.splitlines() if "::" in line and not _OTHERS.search(line)]
    return [test for test in operations if max(map(int, _NUMBER.findall(test.partition("[")[2])), default=0) <= LARGEST]
