# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Imports go up the list of layers only, and command_node never imports torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "flashrt_ros"
LEVEL = {"runtime": 0, "models": 1, "policy": 2, "node": 3, "demo": 4, "tools": 4}
NO_ROS = ("runtime", "models", "policy")
ROS = {"rclpy", "rcl_interfaces", "flashrt_interfaces", "builtin_interfaces"}


def imported(path: Path) -> Iterator[str]:
    """Absolute names that a file imports, wherever in it."""
    here = path.relative_to(ROOT).with_suffix("").parts
    package = here[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def layer(name: str) -> str:
    """The layer of a module of this package; empty: it has none."""
    parts = name.split(".")
    return parts[1] if parts[0] == PACKAGE and len(parts) > 1 and parts[1] in LEVEL else ""


def violations(path: Path) -> list[str]:
    """What a file imports against the order."""
    own = path.relative_to(ROOT / PACKAGE).parts[0]
    found = []
    for name in imported(path):
        above = layer(name)
        if above and above != own and LEVEL[above] >= LEVEL[own] and {own, above} != {"tools", "demo"}:
            found.append(f"{own} imports {name}")
        if own in NO_ROS and (name.split(".")[0] in ROS or name.split(".")[0].endswith("_msgs")):
            found.append(f"{own} imports ROS: {name}")
    return found


SOURCES = sorted(path for path in (ROOT / PACKAGE).rglob("*.py") if path.relative_to(ROOT / PACKAGE).parts[0] in LEVEL)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_up_only(path: Path) -> None:
    assert violations(path) == []


def test_a_downward_import_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    bad = tmp_path / PACKAGE / "runtime" / "bad.py"
    bad.parent.mkdir(parents=True)
    bad.write_text("from ..policy import session\nimport rclpy\n")
    assert set(violations(bad)) == {
        "runtime imports flashrt_ros.policy",
        "runtime imports flashrt_ros.policy.session",
        "runtime imports ROS: rclpy",
    }


def test_command_node_never_imports_torch() -> None:
    pytest.importorskip("rclpy")
    code = "import sys, flashrt_ros.node.command_node; print([m for m in sys.modules if m.split('.')[0] == 'torch'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
