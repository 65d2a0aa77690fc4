# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the demo found: a table of the verbs, and verdicts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from flashrt_ros.demo.printing import yes_or_no
from flashrt_ros.node.stamps import to_nanoseconds


@dataclass(frozen=True, slots=True)
class VerbRow:
    """What a verb cost, as its response says.

    Attributes:
        verb: what it did.
        milliseconds: the median where it was called more than once.
        prefilled_tokens: rows of context that were computed.
        bytes_copied: state that was copied instead.
        position: rows of context behind it.
        calls: how often it was called.
    """

    verb: str
    milliseconds: float
    prefilled_tokens: int
    bytes_copied: int
    position: int
    calls: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim, whether it held, and from what one can tell."""

    claim: str
    held: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a demo. `notes` are facts that nothing is judged by, `pictures` files."""

    rows: tuple[VerbRow, ...]
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...] = ()
    pictures: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        """Whether every verdict held."""
        return all(verdict.held for verdict in self.verdicts)

    def as_dict(self) -> dict[str, Any]:
        """Return what can be written as JSON."""
        return {"held": self.held, **asdict(self)}

    def print(self, console: Console) -> None:
        """Print the table, then the verdicts."""
        table = Table(title="the verbs, as their services answered", box=SIMPLE_HEAD)
        table.add_column("verb", no_wrap=True)
        for heading in ("ms", "tokens prefilled", "bytes copied", "context rows"):
            table.add_column(heading, justify="right")
        for row in self.rows:
            numbers = (f"{row.prefilled_tokens:,}", f"{row.bytes_copied:,}", f"{row.position:,}")
            table.add_row(row.verb, f"{row.milliseconds:.2f}", *numbers)
        console.print(table)
        for verdict in self.verdicts:
            console.print(f"{verdict.claim}: {yes_or_no(verdict.held)}")
            console.print(Padding(f"[dim]{escape(verdict.detail)}[/]", (0, 0, 0, 4)))
        for note in self.notes:
            console.print(note)
        for picture in self.pictures:
            console.print(f"picture: {picture}", soft_wrap=True)


def verb_row(verb: str, responses: list[Any]) -> VerbRow:
    """Summarise the responses of one verb; the counts are those of the last one."""
    last = responses[-1]
    milliseconds = median(to_nanoseconds(response.taken) / 1e6 for response in responses)
    return VerbRow(verb, milliseconds, last.prefilled_tokens, last.bytes_copied, last.position, len(responses))
