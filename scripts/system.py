# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the machine itself must have before an environment can be made, and how to get it."""

from __future__ import annotations

import glob
import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
from ctypes.util import find_library
from pathlib import Path

import progress


def ros_distro() -> str:
    """Name of the ROS installation that is set up in this shell; empty: none, so that ROS comes from wheels."""
    return os.environ.get("ROS_DISTRO", "")


def has_torch() -> bool:
    """Whether the Python that runs this can import torch."""
    return importlib.util.find_spec("torch") is not None


def missing_packages(optional: bool = False) -> list[str]:
    """Debian packages that bring what is absent; optional ones are those that the demo can do without."""
    debian = os.path.realpath(sys.base_prefix) == "/usr"
    python = f"python{sys.version_info.major}.{sys.version_info.minor}" if debian else "python3"
    missing = []
    if not (shutil.which("cc") and shutil.which("c++") and shutil.which("make")):
        missing.append("build-essential")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        missing.append(f"{python}-dev")
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        missing.append(f"{python}-venv")
    if optional and not find_library("EGL"):
        missing.append("libegl1")
    if optional and not (find_library("OpenGL") or find_library("GL")):
        missing.append("libopengl0")
    if optional and not glob.glob("/usr/lib/*/dri/*swrast*"):
        missing.append("libgl1-mesa-dri")
    return missing


def check() -> None:
    """Stop before anything is installed when it could not succeed.

    Raises:
        progress.StepError: names what is missing and the command that brings it.
    """
    missing = missing_packages()
    if missing:
        raise progress.StepError(
            f"missing on this machine: {', '.join(missing)}. Install with\n"
            f"  sudo apt-get update && sudo apt-get install -y {' '.join(missing)}\nand run the same command again."
        )
    if ros_distro():
        if importlib.util.find_spec("rclpy") is None:
            raise progress.StepError(
                f"ROS_DISTRO is {ros_distro()}, but {sys.executable} cannot import rclpy. Source the installation's"
                " setup.bash, choose the Python that it was built for with FLASHRT_PYTHON, or unset ROS_DISTRO to use"
                " wheels."
            )
    elif platform.machine() != "x86_64" or sys.platform != "linux":
        raise progress.StepError(
            f"the ROS 2 wheels exist for Linux on x86_64 only, this is {sys.platform} on {platform.machine()}."
            " Install ROS 2 Jazzy from its packages, source its setup.bash and run again."
        )
    elif sys.version_info[:2] > (3, 13):
        raise progress.StepError(
            f"the ROS 2 wheels exist for Python 3.11 to 3.13, {sys.executable} is {platform.python_version()}."
            " Name another with FLASHRT_PYTHON."
        )
