# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Readers of what commands are given: numbers, and files and folders that are written."""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Number = TypeVar("Number", int, float)


def positive(text: str) -> int:
    """Read a whole number of 1 or more."""
    number = _read(int, text, "a whole number")
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not 1 or more")
    return number


def ros_seed(text: str) -> int:
    """Read a seed of a ROS parameter."""
    number = _read(int, text, "a whole number")
    if not 0 <= number < 2**63:
        raise argparse.ArgumentTypeError(f"{number} is not from 0 to 2**63 - 1")
    return number


def above_zero(text: str) -> float:
    """Read a finite number above 0."""
    number = _read(float, text, "a number")
    if not 0.0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a finite number above 0")
    return number


def not_negative(text: str) -> float:
    """Read a finite number of 0 or more."""
    number = _read(float, text, "a number")
    if not 0.0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a finite number of 0 or more")
    return number


def _read(kind: Callable[[str], Number], text: str, what: str) -> Number:
    try:
        return kind(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} is not {what}") from error


def output_file(text: str) -> Path:
    """Read the name of a file to be written, so that one that cannot be is refused before the work begins."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: there is no folder {path.parent}; make it, or name a file elsewhere")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} cannot be written; name a file elsewhere")
    return path


def existing_folder(text: str) -> Path:
    """Read the name of a folder that must be there."""
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder; name another")
    return path


def folder_to_make(text: str) -> Path:
    """Read the name of a folder that is made if need be, so that one that cannot be is refused before the work begins.

    Nothing is left behind: whether it can be is tried with a folder that is taken away again, for permissions do not
    tell it everywhere (root has them all in /proc, where nothing can be made).
    """
    path = Path(text)
    nearest = next(place for place in (path, *path.parents) if os.path.lexists(place))
    if not nearest.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: {nearest} is no folder; name another")
    try:
        tempfile.TemporaryDirectory(dir=nearest).cleanup()
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"{text}: {nearest} cannot be written to ({error.strerror}); name a folder elsewhere"
        ) from error
    return path
