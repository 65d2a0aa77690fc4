# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""./run says what it can do, and what is missing before it starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BYTECODE = "__pycache__"
"""Not to be copied: what runs beside this file writes there."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What ./run needs to prepare an environment, in a folder without one."""
    copy = tmp_path / "checkout"
    for folder in ("scripts", "requirements", "flashrt_interfaces"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns(BYTECODE))
    shutil.copy2(ROOT / "run", copy)
    return copy


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A PATH with Python and little else: no compiler."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for command in ("bash", "cat", "dirname", "env", "readlink"):
        (folder / command).symlink_to(str(shutil.which(command)))
    (folder / "python3").symlink_to(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
    return folder


def run(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Call a checkout's run, without an installed ROS and what its caller has chosen."""
    chosen = ("ROS_DISTRO", "PYTHONPATH", "FLASHRT_PYTHON", "FLASHRT_TORCH")
    clean = {name: value for name, value in os.environ.items() if name not in chosen}
    return subprocess.run(
        [folder / "run", *arguments],
        env=clean | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_names_commands_and_variables() -> None:
    done = run(ROOT, "--help")
    assert done.returncode == 0
    for word in ("demo", "test", "bench", "soak", "lint", "FLASHRT_PYTHON", "FLASHRT_TORCH", "ROS_DISTRO"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("demo --help", "--seed"),
        ("demo --seed 1 -h", "--seed"),
        ("soak --help", "--minutes"),
        ("bench --help", "stages"),
        ("bench -h", "stages"),
        ("test --help", "./run test ["),
        ("test -k gate -h", "./run test ["),
        ("lint --help", "./run lint"),
    ],
)
def test_help_needs_no_environment(checkout: Path, bare: Path, command: str, named: str) -> None:
    left_out = shutil.ignore_patterns("weights", "*.cu", BYTECODE)
    shutil.copytree(ROOT / "flashrt_ros", checkout / "flashrt_ros", ignore=left_out)
    done = run(checkout, *command.split(), PATH=str(bare))
    assert done.returncode == 0, done.stderr
    assert "usage: " in done.stdout
    assert named in done.stdout
    assert not (checkout / ".venv").exists()


def test_the_lint_takes_no_arguments(checkout: Path, bare: Path) -> None:
    done = run(checkout, "lint", "flashrt_ros", PATH=str(bare))
    assert done.returncode == 2
    assert "not: flashrt_ros" in done.stderr


def test_unknown_command_is_refused() -> None:
    done = run(ROOT, "dance")
    assert done.returncode == 2
    assert "usage: ./run" in done.stderr


def test_missing_compiler_gives_the_apt_line_before_anything_is_made(checkout: Path, bare: Path) -> None:
    done = run(checkout, "test", PATH=str(bare))
    assert done.returncode == 1
    assert "sudo apt-get install -y build-essential" in done.stderr
    assert not (checkout / ".venv").exists()


def test_missing_python_gives_the_apt_line(checkout: Path, bare: Path) -> None:
    (bare / "python3").unlink()
    done = run(checkout, "test", PATH=str(bare))
    assert done.returncode == 1
    assert "apt-get install -y python3 python3-dev python3-venv build-essential" in done.stderr


def test_unusable_python_is_named(checkout: Path) -> None:
    done = run(checkout, "test", FLASHRT_PYTHON="/nowhere/python3")
    assert done.returncode == 1
    assert "FLASHRT_PYTHON=/nowhere/python3" in done.stderr


def test_installed_ros_without_rclpy_is_named(checkout: Path) -> None:
    done = run(checkout, "test", ROS_DISTRO="jazzy", FLASHRT_PYTHON=sys.executable)
    assert done.returncode == 1
    assert "cannot import rclpy" in done.stderr


@pytest.mark.parametrize(
    ("touched", "due"),
    [("flashrt_interfaces/msg/Gate.msg", {"interfaces"}), ("requirements/base.txt", {"packages-base"})],
)
def test_only_what_changed_is_due(checkout: Path, monkeypatch: pytest.MonkeyPatch, touched: str, due: set[str]) -> None:
    code = (
        "import environment\n"
        "environment.VENV.mkdir(exist_ok=True)\n"
        "due = {step.name for step in environment.steps('demo') if step.due()}\n"
        "[step.done() for step in environment.steps('demo')]\n"
        "print(*sorted(due))"
    )

    def ask() -> set[str]:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": str(checkout / "scripts")},
            capture_output=True,
            text=True,
            check=True,
        )
        return set(done.stdout.split())

    assert ask() >= {"environment", "torch", "packages-base", "packages-demo", "interfaces"}
    assert ask() == set()
    (checkout / touched).write_text((checkout / touched).read_text() + "# changed\n")
    assert ask() == due


@pytest.mark.parametrize(("release", "installs"), [("13.0", True), ("12.6", False), ("", False)])
def test_a_torch_for_cuda_brings_the_packages_of_the_backend(checkout: Path, release: str, installs: bool) -> None:
    code = (
        "import environment, progress\n"
        f"progress.answer = lambda command: {release!r}\n"
        "progress.call = lambda command, name: print(command[-1])\n"
        "environment.gpu_step().run()\n"
    )
    path = {"PYTHONPATH": str(checkout / "scripts")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (str(checkout / "requirements/cuda.txt") if installs else "")
