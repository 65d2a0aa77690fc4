# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Files that a command writes at its end."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


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
