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
NOT_OPERATIONS = ("backend", "elsewhere", "policy", "sanitizer", "speech", "pi0")
TORCHS = ("at::", "at_cuda_detail::", "cub::", "cutlass::", "cudnn_", "nvjet_")
"""Kernels of torch and its libraries, which compute what ours are compared with, and which the tools do not find
clean."""

OPTIONS = {"memcheck": (), "racecheck": (), "initcheck": ("--check-api-memory-access", "no")}
"""Each tool's own; that torch copies padding, which nobody wrote, is no error."""

OURS = ("--kernel-name-exclude", "kns=_ZN")
"""A C++ kernel's mangled name begins so; ours have plain names. What the others write is still known."""

_PLACE = re.compile(r"^=========.*?(?<!point) at (?:0x[0-9a-f]+ in )?(?:void )?([\w:<].*)$", re.MULTILINE)


@pytest.mark.skipif(SANITIZER is None, reason="compute-sanitizer is not installed")
@pytest.mark.parametrize("tool", OPTIONS)
def test_every_kernel_is_clean(tool: str, root: Path) -> None:
    named = {path.stem.removeprefix("test_"): path for path in (root / "test" / "gpu").glob("test_*.py")}
    tests = [str(path) for name, path in named.items() if not name.startswith(NOT_OPERATIONS)]
    sanitizer = [str(SANITIZER), "--tool", tool, "--target-processes", "all", "--report-api-errors", "no"]
    sanitizer += ["--show-backtrace", "no", *OURS, *OPTIONS[tool]]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--numprocesses", "6", *tests]
    done = subprocess.run(
        [*sanitizer, *command], capture_output=True, text=True, timeout=SECONDS, check=False, cwd=root
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "SUMMARY" in done.stdout, "the tool did not get to its end"
    ours = [place for place in _PLACE.findall(done.stdout) if not place.startswith(TORCHS)]
    assert not ours, ours[:20]
