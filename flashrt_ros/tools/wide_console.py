# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Where commands print their tables."""

from __future__ import annotations

import sys

from rich.console import Console

_WIDTH_OF_A_PIPE = 160


def wide_console() -> Console:
    """A console as wide as the terminal; a file or a pipe has no width, and gets one for which no table is cut."""
    return Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE, highlight=False)
