# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What `./run soak` does: it reads the options, has the nodes soaked, and shows what became of each fault."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from flashrt_ros.demo.claimed_folder import alone_in
from flashrt_ros.demo.printing import print_logs, table_console
from flashrt_ros.demo.processes import ProcessEndedError
from flashrt_ros.tools.soak.options import parser
from flashrt_ros.tools.soak.rig import Rig, StuckError
from flashrt_ros.tools.soak.run import MEMORY_GROWTH, Outcome, soak


def run(arguments: Sequence[str] | None = None) -> int:
    """Soak; 0 if all held."""
    options = parser().parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        return alone_in(folder, "./run soak", lambda: _soak_in(folder, options))


def _soak_in(folder: Path, options: argparse.Namespace) -> int:
    console = table_console()
    try:
        with console.status("starting the nodes") as status, Rig(folder) as rig:
            outcome = soak(rig, 60.0 * options.minutes, options.seed, options.slack, status.update)
    except (ProcessEndedError, StuckError) as error:
        print_logs(console, sorted((folder / "logs").iterdir()))
        console.print(f"[bold red]the soak has ended early[/]: {escape(str(error))}")
        return 1
    if not outcome.holds:
        print_logs(console, sorted((folder / "logs").iterdir()))
    console.print(table(outcome, options.seed))
    for line in summary(outcome):
        console.print(line, markup=False)
    if options.json:
        options.json.write_text(json.dumps({**asdict(outcome), "holds": outcome.holds}, indent=1))
    return 0 if outcome.holds else 1


def table(outcome: Outcome, seed: int) -> Table:
    """Each fault, how often it was there, and what became of it."""
    made = Table(
        "fault",
        "times",
        "safe after, s",
        "moves again after, s",
        "disturbed",
        "outcome",
        title=f"faults at random, seed {seed}",
    )
    for name, tally in outcome.tallies.items():
        fine = "[green]held[/]" if not tally.failures else f"[bold red]{len(tally.failures)} FAILED[/]"
        made.add_row(
            name,
            str(tally.count),
            _longest(tally.safe),
            _longest(tally.moved_again),
            str(tally.disturbed),
            fine if tally.count else "not injected",
        )
    return made


def summary(outcome: Outcome) -> list[str]:
    """What else is to be said, a line each."""
    lines = [f"{name}: {failure}" for name, tally in outcome.tallies.items() for failure in tally.failures]
    lines += [f"must never be: {violation}" for violation in outcome.violations]
    for node, (before, after) in outcome.memory.items():
        bar = "at most" if outcome.growth(node) <= MEMORY_GROWTH else "MORE THAN"
        lines.append(
            f"memory of {node}_node: {before / 2**20:.0f} to {after / 2**20:.0f} MiB, "
            f"{100 * outcome.growth(node):+.1f} %, {bar} {100 * MEMORY_GROWTH:g} %"
        )
    if outcome.stuck:
        lines.append(f"ended early: {outcome.stuck}")
    return lines


def _longest(times: list[float]) -> str:
    return f"{max(times):.2f}" if times else ""
