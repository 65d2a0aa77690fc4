# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Control lateness and service times while a policy runs, over real processes.

Control at 50 Hz, two 640x480 cameras at 30 Hz, and four clients: three that save, list and sample, 20 times a second
each, and one that restores and runs again once a second. Beside them a process only sleeps, at the rate of the control.
Lateness is that of the newest 1000 ticks, 20 s.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from flashrt_ros.demo.printing import print_logs, table_console, yes_or_no
from flashrt_ros.demo.processes import ProcessEndedError
from flashrt_ros.policy.device import choose
from flashrt_ros.tools.arguments import above_zero, not_negative, output_file, positive
from flashrt_ros.tools.bench.ros_figures import Figures, Spread, Verdict, verdicts
from flashrt_ros.tools.bench.ros_run import Load, measure

_LEAST_SECONDS = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 if it shows what it must."""
    parser = argparse.ArgumentParser(prog="bench ros", description=__doc__)
    parser.add_argument("--seconds", type=above_zero, default=20.0, help="how long to measure (default: %(default)s)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="of the policy")
    parser.add_argument(
        "--threads", type=positive, default=1, help="of the policy's computation (default: %(default)s)"
    )
    parser.add_argument(
        "--recorder",
        type=not_negative,
        default=30.0,
        help="seconds that the flight recorder keeps (default: %(default)s)",
    )
    parser.add_argument("--light", action="store_true", help="two 96x96 cameras, and no client that samples")
    parser.add_argument("--json", type=output_file, help="write the figures to this file too")
    options = parser.parse_args(arguments)
    if options.seconds < _LEAST_SECONDS:
        parser.error(f"--seconds {options.seconds:g}: give {_LEAST_SECONDS:g} or more, so that every call is made")
    choose(options.device)  # a GPU that cannot be had is refused before anything starts
    load = Load(options.light, options.device, options.threads, options.recorder)
    console = table_console()
    with tempfile.TemporaryDirectory() as folder:
        try:
            with console.status("") as status:
                figures = measure(Path(folder), options.seconds, load, status.update)
        except (ProcessEndedError, TimeoutError) as error:
            every = sorted(Path(folder, "logs").iterdir())
            print_logs(console, [error.log] if isinstance(error, ProcessEndedError) else every)
            console.print(f"[bold red]nothing was measured[/]: {escape(str(error))}")
            return 1
    outcome = verdicts(figures)
    console.print(_figures_table(figures))
    console.print(_verdict_table(outcome))
    if options.json:
        said = [{**asdict(verdict), "holds": verdict.holds} for verdict in outcome]
        options.json.write_text(json.dumps({"figures": asdict(figures), "verdicts": said}, indent=1))
    return 0 if all(verdict.holds for verdict in outcome) else 1


def _figures_table(figures: Figures) -> Table:
    def row(spread: Spread) -> tuple[str, str, str]:
        return f"{1e3 * spread.p50:.2f}", f"{1e3 * spread.p99:.2f}", f"{1e3 * spread.max:.2f}"

    table = Table("ms", "p50", "p99", "max", title=f"{figures.inferences:.1f} inferences a second on {figures.device}")
    table.add_row("lateness, sleeper", *row(figures.sleeper))
    table.add_row("lateness, control", *row(figures.control))
    for name, times in (
        ("snapshot", figures.snapshot),
        ("list_capsules", figures.listing),
        ("sample_actions", figures.sample),
        ("restore", figures.restore),
        ("restore called to gate closed", figures.closing),
    ):
        if times:
            table.add_row(name, *row(Spread.of(times)))
    return table


def _verdict_table(outcome: Sequence[Verdict]) -> Table:
    table = Table("must hold", "measured", "bar", "", "holds")
    for verdict in outcome:
        numbers = (f"{verdict.value:.4g}", f"{verdict.bar:.4g}")
        table.add_row(verdict.what, *numbers, verdict.how, yes_or_no(verdict.holds))
    return table


if __name__ == "__main__":
    raise SystemExit(main())
