# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the demo, the tools, the benchmarks and the soak test print alike."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from flashrt_ros.demo.processes import tail

_WIDTH_OF_A_PIPE = 160


def table_console() -> Console:
    """A console that leaves tables and lines whole where it is no terminal."""
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=_WIDTH_OF_A_PIPE, soft_wrap=True)


def yes_or_no(holds: bool) -> str:
    """Whether something holds, for a console."""
    return "[bold green]yes[/]" if holds else "[bold red]NO[/]"


def print_verdicts(console: Console, verdicts: Iterable[tuple[str, bool]]) -> None:
    """Print what had to hold, and whether it does, a line each."""
    for text, holds in verdicts:
        console.print(f"{yes_or_no(holds)}  {escape(text)}")


def print_logs(console: Console, logs: Iterable[Path]) -> None:
    """Print the end of each log."""
    for log in logs:
        console.print(f"[dim]--- the end of {escape(str(log))} ---[/]", soft_wrap=True)
        console.print(tail(log), markup=False)
