# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Plays seeded episodes over ROS, in lockstep, and tells how many were solved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from flashrt_ros.demo.episode_tree import EpisodeTree, EpisodeWatch, first_step
from flashrt_ros.demo.evaluate import Played, summarise, table
from flashrt_ros.demo.printing import yes_or_no
from flashrt_ros.demo.report import Verdict
from flashrt_ros.demo.running import RunningNodes
from flashrt_ros.demo.task import Kind


@dataclass(frozen=True, slots=True)
class EpisodesReport:
    """Episodes that were played; `ended`: whether the nodes ended well; `notes`: what nothing is judged by."""

    played: tuple[Played, ...]
    ended: Verdict
    notes: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        """Whether all went as it should; an episode that was not solved is no fault of the demo."""
        return self.ended.held

    def as_dict(self) -> dict[str, Any]:
        """Return what can be written as JSON."""
        episodes = [asdict(episode) for episode in self.played]
        return {"held": self.held, "summary": summarise(list(self.played)), "episodes": episodes, "notes": self.notes}

    def print(self, console: Console) -> None:
        """Print the table, then the notes."""
        console.print(table(summarise(list(self.played))))
        for note in self.notes:
            console.print(note)
        if not self.held:
            console.print(f"{self.ended.claim}: {yes_or_no(False)} {self.ended.detail}")


def play_episodes(nodes: RunningNodes, episodes: Iterable[tuple[Kind, int]]) -> Iterator[Played]:
    """Play one episode after another, each of a kind and a seed.

    Raises:
        StepFailedError: a step failed, the policy's too; a wrong button is an outcome.
        ProcessEndedError: a node has ended.
    """
    nodes.run(first_step(nodes.recorder))
    tree = EpisodeTree(nodes.recorder, EpisodeWatch(nodes.node))
    for kind, seed in episodes:
        tree.choose(kind, seed)
        nodes.run(tree.root, "episodes over ROS")
        outcome = tree.watch.outcome
        if outcome is None:
            raise ValueError("an episode ended without an outcome")
        yield Played(kind.value, seed, outcome.value, tree.watch.tick)
