# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Every kernel compiles for every architecture, and spills registers only where its file says so."""

from __future__ import annotations

import re

import pytest

nvrtc = pytest.importorskip("flashrt_ros.runtime.cuda.nvrtc", reason="needs requirements/cuda.txt")

SOURCES = sorted(nvrtc.KERNELS.glob("*.cu"))
_ENTRY = re.compile(r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads", re.DOTALL)
_DECLARED = re.compile(r"^// spills: (.+)$", re.MULTILINE)


def test_there_are_kernels() -> None:
    assert "copy" in {path.stem for path in SOURCES}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_compiles_without_undeclared_spills(path) -> None:
    declared = {name for line in _DECLARED.findall(path.read_text(encoding="utf-8")) for name in line.split()}
    spills = {}
    for arch in nvrtc.ARCHITECTURES:
        cubin, log = nvrtc.compile_file(path, arch, verbose=True)
        entries = _ENTRY.findall(log)
        assert cubin.startswith(b"\x7fELF")
        assert entries, f"{path.name} has no kernel: {log}"
        for name, *spilt in entries:
            if spilt != ["0", "0"]:
                spills.setdefault(name, []).append(arch)
    undeclared = {name: archs for name, archs in spills.items() if name not in declared}
    assert not undeclared
