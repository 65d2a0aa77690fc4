# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Files of config/, wherever the package runs from."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def config_file(name: str) -> Path:
    """Return a file of config/, in the checkout or where it was installed.

    Raises:
        FileNotFoundError: it is nowhere.
    """
    prefixes = [*os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep), sys.prefix]
    shares = [Path(__file__).parents[2], *(Path(prefix) / "share" / "flashrt_ros" for prefix in prefixes if prefix)]
    for share in shares:
        path = share / "config" / name
        if path.is_file():
            return path
    raise FileNotFoundError(f"config/{name} is in none of {', '.join(map(str, shares))}")
