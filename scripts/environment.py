# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Prepare .venv for ./run: ROS 2, torch, the packages that a command needs, the built interfaces.

Uses the standard library only. What is done is remembered in .venv/.flashrt as the hash of what went in, so nothing is
done twice; a lock on the checkout's folder keeps two runs apart.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import progress
import system

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMPS = VENV / ".flashrt"
REQUIREMENTS = ROOT / "requirements"
INTERFACES = ROOT / "flashrt_interfaces"
GROUPS = {
    "demo": ("base", "demo"),
    "bench": ("base", "demo"),
    "soak": ("base", "demo"),
    "test": ("base", "demo", "cuda", "test"),
    "lint": ("base", "demo", "cuda", "test", "lint"),
}
CUDA = 13
"""The release that requirements/cuda.txt is for."""

PIP = (str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--no-input", "install")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to prepare; it is due when its stamp does not hold its key."""

    name: str
    title: str
    key: str
    run: Callable[[], None]

    def due(self) -> bool:
        """Whether it was never done with these inputs."""
        stamp = STAMPS / self.name
        return not stamp.is_file() or stamp.read_text() != self.key

    def done(self) -> None:
        """Remember that it was done."""
        STAMPS.mkdir(exist_ok=True)
        (STAMPS / self.name).write_text(self.key)


def digest(*parts: str | Path) -> str:
    """Hash texts, files, and folders with all that they hold."""
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            sha.update(part.encode() + b"\0")
            continue
        for path in sorted(part.rglob("*")) if part.is_dir() else [part]:
            if path.is_file():
                sha.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return sha.hexdigest()


def base_identity() -> str:
    """Name the Python that .venv is made from."""
    return f"{sys.version_info.major}.{sys.version_info.minor} {os.path.realpath(sys.base_prefix)}"


def usable() -> bool:
    """Whether .venv works and belongs to the same Python."""
    code = (
        "import os, sys;"
        "print(f'{sys.version_info.major}.{sys.version_info.minor} {os.path.realpath(sys.base_prefix)}|{sys.prefix}')"
    )
    answer = progress.answer([str(PYTHON), "-c", code])
    return answer == f"{base_identity()}|{VENV}"


def environment_step() -> Step:
    """Make .venv; one that somebody made by hand is kept if it is usable.

    It sees the system's packages where ROS or torch come from there. One that was made for another Python, folder or
    ROS is made anew.
    """

    def run() -> None:
        if not (STAMPS / "environment").exists() and usable():
            return
        shared = ["--system-site-packages"] if system.ros_distro() or system.has_torch() else []
        progress.call([sys.executable, "-m", "venv", "--clear", *shared, str(VENV)], "environment")

    key = digest(base_identity(), str(ROOT), f"ROS {system.ros_distro()}")
    return Step("environment", "making the environment .venv", key, run)


def torch_step() -> Step:
    """Install torch unless .venv can import one."""
    chosen = os.environ.get("FLASHRT_TORCH", "")

    def run() -> None:
        if not chosen and progress.answer([str(PYTHON), "-c", "import torch; print(torch.__version__)"]):
            return
        what = chosen.split() if chosen else ["-r", str(REQUIREMENTS / "torch.txt")]
        progress.call([*PIP, *what], "torch")

    title = f"looking for torch, else installing {chosen or 'it (README: Choosing a torch)'}"
    return Step("torch", title, digest(chosen, REQUIREMENTS / "torch.txt"), run)


def gpu_step() -> Step:
    """Install the packages of the cuda backend where torch is a build for the CUDA that they are for."""
    file = REQUIREMENTS / "cuda.txt"

    def run() -> None:
        release = progress.answer([str(PYTHON), "-c", "import torch; print(torch.version.cuda or '')"])
        if release.startswith(f"{CUDA}."):
            progress.call([*PIP, "-r", str(file)], "packages-cuda")

    key = digest(os.environ.get("FLASHRT_TORCH", ""), REQUIREMENTS / "torch.txt", file)
    return Step("gpu", f"looking for a torch for CUDA {CUDA}, to install requirements/cuda.txt beside it", key, run)


def packages_steps(groups: Sequence[str]) -> list[Step]:
    """Install requirement files."""

    def step(group: str) -> Step:
        file = REQUIREMENTS / f"{group}.txt"
        return Step(
            f"packages-{group}",
            f"installing the packages of requirements/{group}.txt",
            digest(file),
            lambda: progress.call([*PIP, "-r", str(file)], f"packages-{group}"),
        )

    return [step(group) for group in groups]


def interfaces_step() -> Step:
    """Build flashrt_interfaces: with colcon into .venv/ros on an installed ROS, else with pip into .venv."""

    def run() -> None:
        if system.ros_distro():
            prefix = VENV / "ros"
            colcon = [
                str(PYTHON),
                "-m",
                "colcon",
                "--log-base",
                str(prefix / "log"),
                "build",
                "--base-paths",
                str(INTERFACES),
            ]
            places = [
                "--build-base",
                str(prefix / "build"),
                "--install-base",
                str(prefix / "install"),
                "--merge-install",
            ]
            options = ["--cmake-args", "-DBUILD_TESTING=OFF", f"-DPython3_EXECUTABLE={PYTHON}"]
            progress.call([*colcon, *places, *options], "interfaces")
        else:
            options = ["--no-build-isolation", "--no-deps", "--force-reinstall"]
            progress.call([*PIP, *options, str(INTERFACES)], "interfaces", path=[VENV / "bin"])

    return Step("interfaces", "building flashrt_interfaces", digest(INTERFACES, REQUIREMENTS / "ros.txt"), run)


def steps(command: str) -> list[Step]:
    """All steps of a command, in order."""
    ros = "colcon" if system.ros_distro() else "ros"
    gpu = [] if "cuda" in GROUPS[command] else [gpu_step()]
    return [environment_step(), torch_step(), *packages_steps((ros, *GROUPS[command])), *gpu, interfaces_step()]


@contextmanager
def locked() -> Iterator[None]:
    """Hold the lock on the checkout; say so when another run holds it."""
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say("another ./run prepares the environment; waiting for it")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def prepare(command: str) -> None:
    """Do the due steps of a command, or exit with what is missing or what failed."""
    with locked():
        first = environment_step()
        due = steps(command) if first.due() or not PYTHON.exists() else [s for s in steps(command) if s.due()]
        if not due:
            return
        system.check()
        for number, step in enumerate(due, 1):
            with progress.step(number, len(due), step.title):
                step.run()
            step.done()


def main() -> int:
    """Entry point of ./run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "command", choices=[*GROUPS, "missing"], help="what to prepare; missing: print absent Debian packages"
    )
    command = parser.parse_args().command
    if command == "missing":
        print(*system.missing_packages(optional=True))
        return 0
    try:
        prepare(command)
    except progress.StepError as failure:
        progress.say(str(failure))
        return 1
    except KeyboardInterrupt:
        progress.say("interrupted; the same command goes on where it stopped")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
