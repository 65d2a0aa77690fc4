# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How often a policy solves the task: episodes in this process, without ROS, with the timing of lockstep."""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from flashrt_ros.demo.closed_loop import ClosedLoop, Planner
from flashrt_ros.demo.expert import Expert
from flashrt_ros.demo.nodes import contract_file
from flashrt_ros.demo.options import checkpoint
from flashrt_ros.demo.render import RENDERERS, open_renderer
from flashrt_ros.demo.task import LIGHTS_OVER, Kind, Outcome, Task, draw_scenario
from flashrt_ros.demo.world import World
from flashrt_ros.policy.contract import load_contract
from flashrt_ros.policy.loading import load_policy
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.session import Session
from flashrt_ros.policy.store import CapsuleStore
from flashrt_ros.tools.arguments import output_file, positive, ros_seed

WEIGHTS = Path(__file__).with_name("weights")
"""The policy that the package ships."""

_Z = 1.959963984540054  # of a two-sided interval of 95 %


def wilson(successes: int, episodes: int) -> tuple[float, float]:
    """Bounds of a success rate at 95 % (E. B. Wilson, 1927)."""
    if not episodes:
        return 0.0, 1.0
    rate, spread = successes / episodes, _Z**2 / episodes
    centre = rate + spread / 2
    half = _Z * math.sqrt(rate * (1 - rate) / episodes + spread / (4 * episodes))
    return max(0.0, (centre - half) / (1 + spread)), min(1.0, (centre + half) / (1 + spread))


@dataclass(frozen=True, slots=True)
class Played:
    """An episode that is over; `ticks` of 0.1 s."""

    kind: str
    seed: int
    outcome: str
    ticks: int


class Player:
    """Plays episodes with one policy, or with the expert where `checkpoint` is None."""

    def __init__(self, checkpoint: Path | None, renderer: str, threads: int = 1, blind: bool = False) -> None:
        """`blind`: the policy's memory begins when the lights have gone out."""
        self._blind = blind
        self._world = World()
        self._renderer = open_renderer(self._world, renderer)
        self._contract = load_contract(contract_file())
        self._session: Session | None = None
        if checkpoint is not None:
            self._session = Session(load_policy(checkpoint, threads=threads), CapsuleStore(64 << 20), journal_bytes=0)

    def play(self, kind: Kind, seed: int) -> Played:
        """Play one episode to its end."""
        task = Task(self._world, draw_scenario(kind, seed), seed)
        while self._blind and task.tick < LIGHTS_OVER:
            task.step(self._world.targets)
        planner = self._expert(task) if self._session is None else self._policy(self._session, task, seed)
        lockstep = self._contract.lockstep
        if lockstep is None:
            raise ValueError(f"{self._contract.file} has no lockstep")
        ClosedLoop(task, self._renderer, planner, self._contract.action, lockstep.apply_after).run()
        return Played(kind.value, seed, task.outcome.value, task.tick)

    def _policy(self, session: Session, task: Task, seed: int) -> Planner:
        session.begin(task.scenario.instruction, seed=seed)

        def plan(observation: Observation) -> NDArray[np.float64]:
            session.observe(observation)
            return session.act().actions

        return plan

    def _expert(self, task: Task) -> Planner:
        expert = Expert(task)

        def plan(observation: Observation) -> NDArray[np.float64]:
            expert.look()
            return expert.plan(observation.state)

        return plan


_player: Player | None = None


def _start_worker(checkpoint: Path | None, renderer: str, blind: bool) -> None:
    global _player
    _player = Player(checkpoint, renderer, blind=blind)


def _play(job: tuple[Kind, int]) -> Played:
    assert _player is not None
    return _player.play(*job)


def play_all(
    checkpoint: Path | None, kinds: list[Kind], seeds: range, renderer: str, workers: int, blind: bool
) -> Iterator[Played]:
    """Play every seed of every kind, in worker processes; None plays the expert."""
    jobs = [(kind, seed) for seed in seeds for kind in kinds]
    context = multiprocessing.get_context("spawn")
    with context.Pool(min(workers, len(jobs)), _start_worker, (checkpoint, renderer, blind)) as pool:
        yield from pool.imap_unordered(_play, jobs)


def summarise(played: list[Played]) -> dict[str, dict[str, Any]]:
    """Success rate with its interval, outcomes and mean duration (s) of each kind."""
    found = {}
    for kind in Kind:
        own = [episode for episode in played if episode.kind == kind]
        if own:
            outcomes = Counter(episode.outcome for episode in own)
            successes = outcomes[Outcome.SUCCESS.value]
            found[kind.value] = {
                "episodes": len(own),
                "success": successes / len(own),
                "interval": list(wilson(successes, len(own))),
                "outcomes": dict(sorted(outcomes.items())),
                "seconds": sum(episode.ticks for episode in own) / len(own) / 10,
            }
    return found


def table(summary: dict[str, dict[str, Any]]) -> Table:
    """A summary for people."""
    made = Table("instruction", "episodes", "success", "95 % interval", "outcomes", "s")
    for kind, row in summary.items():
        low, high = row["interval"]
        outcomes = ", ".join(f"{name} {count}" for name, count in row["outcomes"].items())
        rate, interval = f"{row['success']:.1%}", f"{low:.1%} to {high:.1%}"
        made.add_row(kind, str(row["episodes"]), rate, interval, outcomes, f"{row['seconds']:.1f}")
    return made


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m flashrt_ros.demo.evaluate", description=__doc__)
    player = made.add_mutually_exclusive_group()
    player.add_argument(
        "--checkpoint", type=checkpoint, default=WEIGHTS, help="policy folder (default: the shipped one)"
    )
    player.add_argument("--expert", action="store_true", help="play the scripted expert in the policy's place")
    made.add_argument("--blind", action="store_true", help="let the policy's memory begin after the lights")
    made.add_argument("--kind", choices=[kind.value for kind in Kind], action="append", help="(default: all)")
    made.add_argument("--episodes", type=positive, default=50, help="of each kind (default: %(default)s)")
    made.add_argument("--seed", type=ros_seed, default=0, help="of the first episode (default: %(default)s)")
    made.add_argument("--renderer", choices=RENDERERS, default="auto")
    made.add_argument("--workers", type=positive, default=1, help="processes (default: %(default)s)")
    made.add_argument("--json", type=output_file, help="write the result here too")
    return made


def main(args: list[str] | None = None) -> int:
    """Play, and print a table."""
    options = _parser().parse_args(args)
    kinds = [Kind(kind) for kind in options.kind or Kind]
    seeds = range(options.seed, options.seed + options.episodes)
    checkpoint = None if options.expert else options.checkpoint
    episodes = play_all(checkpoint, kinds, seeds, options.renderer, options.workers, options.blind)
    console = Console()
    played = list(track(episodes, "playing", len(seeds) * len(kinds), console=console))
    summary = summarise(played)
    console.print(table(summary))
    if options.json:
        result = {"summary": summary, "episodes": [asdict(episode) for episode in played]}
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
