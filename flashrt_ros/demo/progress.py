# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Shows what the demo is waiting for, and for how long; what is done stays as a line."""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape


class Progress:
    """One line that changes, on a terminal; elsewhere only the lines of what is done."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("")
        self._what = ""
        self._begun = time.monotonic()

    def __enter__(self) -> Progress:
        self._status.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._status.stop()

    def show(self, what: str, detail: str = "") -> None:
        """Tell what is being done; `detail` may change at every call."""
        if what != self._what:
            self.done()
            self._what, self._begun = what, time.monotonic()
        self._status.update(f"{escape(what)} [dim]{self._elapsed():.0f} s  {escape(detail)}[/]")

    def done(self) -> None:
        """Leave a line for what was shown last."""
        if self._what:
            self._console.print(f"[green]✓[/] {escape(self._what)} [dim]{self._elapsed():.1f} s[/]", highlight=False)
        self._what = ""

    def _elapsed(self) -> float:
        return time.monotonic() - self._begun
