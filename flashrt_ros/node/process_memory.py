# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How much memory a process takes."""

from __future__ import annotations

import os
from pathlib import Path


def resident_bytes(process: int | str = "self") -> int:
    """Bytes of a process that are in memory; `process` is its id, or "self"."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
