# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The shipped policy plays the task over ROS, in lockstep."""

from __future__ import annotations

import io
from math import comb
from pathlib import Path

import pytest
from rich.console import Console

from flashrt_ros.demo.episodes import EpisodesReport, play_episodes
from flashrt_ros.demo.evaluate import WEIGHTS, Played
from flashrt_ros.demo.nodes import Setting
from flashrt_ros.demo.progress import Progress
from flashrt_ros.demo.report import Verdict
from flashrt_ros.demo.running import RunningNodes
from flashrt_ros.demo.task import Kind, Outcome

CHANCE = 1 / 4  # one of four buttons
EPISODES = {Kind.NAMED: 8, Kind.LIT: 12}


def bound(episodes: int) -> int:
    """Successes that one who guesses reaches once in 1000 runs at most."""

    def tail(successes: int) -> float:
        numbers = range(successes, episodes + 1)
        return sum(comb(episodes, n) * CHANCE**n * (1 - CHANCE) ** (episodes - n) for n in numbers)

    return next(successes for successes in range(episodes + 1) if tail(successes) <= 0.001)


@pytest.fixture
def progress() -> Progress:
    return Progress(Console(file=io.StringIO()))


def test_twenty_episodes_are_solved_far_more_often_than_by_chance(tmp_path: Path, progress: Progress) -> None:
    jobs = [(kind, seed) for kind, count in EPISODES.items() for seed in range(count)]
    with progress, RunningNodes(Setting(tmp_path, WEIGHTS), progress) as nodes:
        played = list(play_episodes(nodes, jobs))
        ended = nodes.end()
    assert ended.held, ended.detail
    assert [(episode.kind, episode.seed) for episode in played] == [(kind.value, seed) for kind, seed in jobs]
    for kind, count in EPISODES.items():
        solved = [episode.outcome == Outcome.SUCCESS for episode in played if episode.kind == kind]
        assert sum(solved) >= bound(count), played


def test_the_report_counts_and_tells_of_a_bad_end() -> None:
    played = tuple(Played("lit", seed, outcome, 30) for seed, outcome in enumerate(("success", "wrong button")))
    good = EpisodesReport(played, Verdict("every process ended cleanly", True, ""))
    assert good.held
    assert good.as_dict()["summary"]["lit"]["success"] == 0.5
    assert [episode["outcome"] for episode in good.as_dict()["episodes"]] == ["success", "wrong button"]
    text = io.StringIO()
    bad = EpisodesReport(played, Verdict("every process ended cleanly", False, "policy was killed"))
    bad.print(Console(file=text, width=120))
    assert not bad.held
    assert "50.0%" in text.getvalue()
    assert "policy was killed" in text.getvalue()
