# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Every kernel is tested, and so under NVIDIA's compute-sanitizer: nothing out of bounds, no race, nothing read before
it is written."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

SANITIZER = shutil.which("compute-sanitizer")
SECONDS = 900.0
WORKERS = ("--numprocesses", "6")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
TORCHS = ("at::", "at_cuda_detail::", "cub::", "cublasLt::", "cutlass::", "cudnn_", "fmha_cutlass", "nvjet_")
"""Kernels of torch and its libraries, which compute what ours are compared with, and which the tools do not find
clean."""

WITHOUT_TORCHS = ("--kernel-name-exclude", "kns=_ZN")
"""A C++ kernel's mangled name begins so; ours have plain names. So have torch's for Hopper, which racecheck has to
watch: they fail where it does not."""

UNORDERED = frozenset({"denoise_layers.denoise_layers"})
"""racecheck follows the barriers of a block and of a cluster. The blocks of this kernel read each other's shared memory
behind counts that they raise in device memory and at each other's mbarriers; it takes each such read for a race.
test_layers.py lets them fall behind each other instead."""

OPTIONS = {
    "memcheck": WITHOUT_TORCHS,
    "racecheck": WITHOUT_TORCHS,
    # It has to see who writes what; that torch copies padding, which nobody wrote, is no error.
    "initcheck": ("--check-api-memory-access", "no"),
}
UNTESTED = {"attend_rows.attend_rows_combine", "stream.stream", "stream.stream_bulk"}
"""What GPUs before sm_90 alone launch, and what only measures what a GPU can do."""

_OTHERS = re.compile("test_(backend|elsewhere|node|pi0|policy|sanitizer|speech)")
"""Tests of more than operations."""

_PLACE = re.compile(r"^=========.*?(?<!point) at (?:0x[0-9a-f]+ in )?(?:void )?([\w:<].*)$", re.MULTILINE)
_ENTRY = re.compile(rb"\.text\.([a-z0-9_]+)\0")


@dataclass(frozen=True)
class Passed:
    """A test of an operation: how long it took, and which kernels it launched."""

    test: str
    seconds: float
    kernels: frozenset[str]


@pytest.fixture(scope="module")
def passed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Passed]:
    """The tests of operations, the fastest first."""
    report = tmp_path_factory.mktemp("operations") / "report.xml"
    files = [str(path) for path in (root / "test" / "gpu").glob("test_*.py") if not _OTHERS.match(path.name)]
    done = _run([*PYTEST, *WORKERS, "-o", "junit_family=xunit1", f"--junitxml={report}", *files], root)
    assert done.returncode == 0, done.stdout[-4000:]
    return sorted(map(_passed, ElementTree.parse(report).iter("testcase")), key=lambda each: each.seconds)


def test_every_kernel_is_tested(passed: list[Passed]) -> None:
    from flashrt_ros.runtime.cuda.driver import Device
    from flashrt_ros.runtime.cuda.nvrtc import KERNELS, CubinCache, architecture

    arch = architecture(Device().properties.capability)
    if arch != "sm_90a":
        pytest.skip(f"some kernels are for sm_90a alone, and this is {arch}")
    cache = CubinCache()
    there = {
        f"{path.stem}.{name.decode()}"
        for path in KERNELS.glob("*.cu")
        for name in _ENTRY.findall(cache.cubin(path, arch))
    }
    assert not there - UNTESTED - frozenset().union(*(each.kernels for each in passed))


@pytest.mark.skipif(SANITIZER is None, reason="compute-sanitizer is not installed")
@pytest.mark.parametrize("tool", OPTIONS)
def test_every_kernel_is_clean(tool: str, root: Path, passed: list[Passed]) -> None:
    options = ["--tool", tool, "--target-processes", "all", "--report-api-errors", "no", "--show-backtrace", "no"]
    chosen = fastest_for_each_kernel(passed, UNORDERED if tool == "racecheck" else frozenset())
    # The tests of a file stay in one process: the tools rewrite all kernels that a process loads, which takes long.
    tests = ["-x", *WORKERS, "--dist", "loadfile", *chosen]
    done = _run([str(SANITIZER), *options, *OPTIONS[tool], *PYTEST, *tests], root)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "SUMMARY" in done.stdout, "the tool did not get to its end"
    ours = [place for place in _PLACE.findall(done.stdout) if not place.startswith(TORCHS)]
    assert not ours, ours[:20]


def fastest_for_each_kernel(passed: list[Passed], without: frozenset[str]) -> list[str]:
    """Tests that launch every kernel between them, but for some that none of them launches."""
    seen: set[str] = set()
    chosen = []
    for each in passed:
        if not each.kernels <= seen and not each.kernels & without:
            chosen.append(each.test)
            seen |= each.kernels
    return chosen


def _passed(case: ElementTree.Element) -> Passed:
    """Of a line of the report, which names modules with dots."""
    kernels = {each.attrib["value"] for each in case.iter("property") if each.attrib["name"] == "kernels"}
    file = case.attrib["classname"].replace(".", "/") + ".py"
    test = f"{file}::{case.attrib['name']}"
    return Passed(test, float(case.attrib["time"]), frozenset(" ".join(kernels).split()))


def _run(command: list[str], root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=root)
