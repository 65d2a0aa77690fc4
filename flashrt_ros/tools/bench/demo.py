# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How well the demo's policy solves its task, and what its success rests on.

Over ROS, in lockstep: episodes of each kind of instruction, and a sample in real time. In this process, with the same
timing: the expert, the retries from the boundary after the light with more or less of the state restored, a reset
against a cold start, and the best of n forks of one boundary.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from flashrt_ros.demo.chart import draw_rates
from flashrt_ros.demo.evaluate import WEIGHTS, play_all, summarise, wilson
from flashrt_ros.demo.nodes import Setting
from flashrt_ros.demo.options import checkpoint
from flashrt_ros.demo.play import StepFailedError
from flashrt_ros.demo.printing import print_verdicts, table_console
from flashrt_ros.demo.processes import ProcessEndedError
from flashrt_ros.demo.progress import Progress
from flashrt_ros.demo.rehearsal import Rehearsal
from flashrt_ros.demo.task import Kind
from flashrt_ros.tools.arguments import output_file, positive, ros_seed
from flashrt_ros.tools.bench import demo_best, demo_memory
from flashrt_ros.tools.bench.demo_figures import Figures, verdicts
from flashrt_ros.tools.bench.demo_ros import play_in_real_time, play_over_ros

_REAL_TIME_EPISODES = 20
_RESETS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 if it shows what it must."""
    options = _parser().parse_args(arguments)
    console = table_console()
    with tempfile.TemporaryDirectory() as folder, Progress(console) as progress:
        try:
            figures = measure(options, Path(folder), progress)
        except (ProcessEndedError, StepFailedError) as error:
            console.print(f"[bold red]nothing was measured[/]: {error}")
            return 1
        progress.done()
    for table in (_episodes_table(figures), _memory_table(figures), _best_table(figures)):
        console.print(table)
    outcome = verdicts(figures)
    print_verdicts(console, outcome)
    if options.json:
        options.json.write_text(json.dumps({"figures": asdict(figures), "verdicts": dict(outcome)}, indent=1))
    if options.picture:
        _draw_best(figures, options.picture)
    return 0 if all(holds for _, holds in outcome) else 1


def measure(options: argparse.Namespace, folder: Path, progress: Progress) -> Figures:
    """Measure everything; errors as RunningNodes.run."""
    seeds = range(options.seed, options.seed + options.episodes)
    setting = Setting(folder, options.checkpoint, options.seed, options.renderer)
    over_ros = play_over_ros(setting, [(kind, seed) for seed in seeds for kind in Kind], progress)
    sample = [(list(Kind)[index % len(Kind)], options.seed + index) for index in range(_REAL_TIME_EPISODES)]
    in_real_time, pace = play_in_real_time(setting, sample, progress)
    progress.show("the expert")
    expert = list(play_all(None, list(Kind), seeds, options.renderer, options.workers, blind=False))
    rehearsal = Rehearsal(options.checkpoint, options.renderer)
    cases = []
    for seed in seeds:
        progress.show("memories", f"seed {seed}")
        cases.append(demo_memory.try_memories(rehearsal, seed))
    progress.show("resets")
    resets = [demo_memory.reset_is_cold_start(options.checkpoint, options.renderer, seed) for seed in range(_RESETS)]
    boundaries = []
    for seed in range(options.seed, options.seed + options.boundaries):
        progress.show("best of n", f"seed {seed}")
        boundaries += demo_best.try_forks(rehearsal, seed, options.forks)
    return Figures(
        policy=summarise(over_ros),
        expert=summarise(expert),
        real_time=summarise(in_real_time),
        pace=pace,
        memories=cases,
        resets=resets,
        best=_best(boundaries, options.forks),
    )


def _best(boundaries: list[demo_best.Boundary], forks: int) -> dict[str, list[tuple[int, float]]]:
    """Success of the best of n, by situation, for each power of two."""
    numbers = [1 << power for power in range(forks.bit_length()) if 1 << power <= forks]
    found = {}
    for situation in demo_best.SITUATIONS:
        own = [boundary for boundary in boundaries if boundary.situation == situation]
        found[situation] = [(n, demo_best.success_of_best(own, n)) for n in numbers]
    return found


def _episodes_table(figures: Figures) -> Table:
    table = Table("player", "instruction", "episodes", "success", "95 % interval", "s")
    players = {
        "policy, over ROS in lockstep": figures.policy,
        "policy, over ROS in real time": figures.real_time,
        "expert": figures.expert,
    }
    for player, summary in players.items():
        for kind, row in summary.items():
            low, high = row["interval"]
            rate = (f"{row['success']:.1%}", f"{low:.1%} to {high:.1%}", f"{row['seconds']:.1f}")
            table.add_row(player, kind, str(row["episodes"]), *rate)
    return table


def _memory_table(figures: Figures) -> Table:
    table = Table("from the boundary after the light", "success", "95 % interval", "the other episode's button")
    count = len(figures.memories)
    for condition in demo_memory.CONDITIONS:
        successes = sum(case.successes[condition] for case in figures.memories)
        confused = sum(case.confused[condition] for case in figures.memories)
        low, high = wilson(successes, count)
        table.add_row(condition, f"{successes / count:.1%}", f"{low:.1%} to {high:.1%}", f"{confused / count:.1%}")
    return table


def _best_table(figures: Figures) -> Table:
    numbers = [str(n) for n, _ in next(iter(figures.best.values()))]
    table = Table("success of the best of n forks, n =", *numbers)
    for situation, points in figures.best.items():
        table.add_row(situation, *(f"{rate:.0%}" for _, rate in points))
    return table


def _draw_best(figures: Figures, path: Path) -> None:
    title = "Best of n in simulation"
    draw_rates(title, "forks of one boundary that are tried", figures.best).save(path)


def _png(text: str) -> Path:
    """Read the name of a picture to be written."""
    path = output_file(text)
    if path.suffix != ".png":
        raise argparse.ArgumentTypeError(f"{text}: name a file that ends in .png")
    return path


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="bench demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--episodes", type=positive, default=200, help="of each kind (default: %(default)s)")
    made.add_argument("--boundaries", type=positive, default=25, help="for best of n (default: %(default)s)")
    made.add_argument("--forks", type=positive, default=16, help="of each boundary (default: %(default)s)")
    made.add_argument("--seed", type=ros_seed, default=0, help="of the first episode (default: %(default)s)")
    made.add_argument("--checkpoint", type=checkpoint, default=WEIGHTS, help="a policy (default: the one that ships)")
    made.add_argument("--renderer", choices=("auto", "egl", "drawn"), default="auto", help="of the camera views")
    made.add_argument("--workers", type=positive, default=os.cpu_count() or 1, help="processes of the expert")
    made.add_argument("--json", type=output_file, help="write the figures to this file too")
    made.add_argument("--picture", type=_png, help="draw success against n into this file (.png)")
    return made


if __name__ == "__main__":
    raise SystemExit(main())
