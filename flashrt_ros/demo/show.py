# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What `./run demo` shows: the verbs and the story, or many episodes."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from flashrt_ros.demo.episode_tree import EpisodeWatch
from flashrt_ros.demo.episodes import EpisodesReport, play_episodes
from flashrt_ros.demo.evaluate import WEIGHTS
from flashrt_ros.demo.nodes import Setting
from flashrt_ros.demo.progress import Progress
from flashrt_ros.demo.rehearsal import Rehearsal
from flashrt_ros.demo.report import Report
from flashrt_ros.demo.running import RunningNodes
from flashrt_ros.demo.story import draw_story, retry_otherwise, verdicts
from flashrt_ros.demo.story_tree import StoryTree
from flashrt_ros.demo.task import Kind
from flashrt_ros.demo.tree import DemoTree
from flashrt_ros.demo.view import no_screen, open_window
from flashrt_ros.demo.witness import Witness


def show(options: Namespace, folder: Path, progress: Progress) -> Report:
    """Play the verbs, and the story unless the policy is untrained. Errors as RunningNodes.run."""
    story: StoryTree | None = None
    with _running(options, folder, progress) as nodes:
        demo = DemoTree(nodes.recorder, seed=options.seed, steps=options.steps, record=options.record)
        nodes.run(demo.root)
        report = demo.report()
        if not options.untrained:
            pacing = 1.0 if options.pace is None else options.pace
            story = StoryTree(
                nodes.recorder,
                EpisodeWatch(nodes.node),
                Witness(nodes.node, nodes.recorder.period),
                seed=options.seed,
                pacing=pacing,
            )
            nodes.run(story.root)
        ended = nodes.end()
    if story is not None:
        report = _with_story(report, story, options, folder, progress)
    return replace(report, verdicts=(*report.verdicts, ended), notes=(*report.notes, *_notes(options)))


def show_episodes(options: Namespace, folder: Path, progress: Progress) -> EpisodesReport:
    """Play episodes of each kind of instruction. Errors as RunningNodes.run."""
    seeds = range(options.seed, options.seed + options.episodes)
    with _running(options, folder, progress) as nodes:
        played = tuple(play_episodes(nodes, [(kind, seed) for seed in seeds for kind in Kind]))
        ended = nodes.end()
    return EpisodesReport(played, ended, _notes(options))


def _notes(options: Namespace) -> tuple[str, ...]:
    return (f"no window: {no_screen()}",) if options.view and no_screen() else ()


@contextmanager
def _running(options: Namespace, folder: Path, progress: Progress) -> Iterator[RunningNodes]:
    """The nodes, and the window where it is asked for and there is a screen."""
    window = options.view and not no_screen()
    setting = Setting(
        folder=folder,
        checkpoint=_checkpoint(options, folder),
        seed=options.seed,
        renderer=options.renderer,
        pacing=float(window) if options.pace is None else options.pace,
        record=options.record,
    )
    with RunningNodes(setting, progress, untrained=options.untrained) as nodes, ExitStack() as stack:
        if window:
            stack.enter_context(open_window(folder / "logs"))
        yield nodes


def _checkpoint(options: Namespace, folder: Path) -> Path:
    return folder / "checkpoint" if options.untrained else options.checkpoint or WEIGHTS


def _with_story(report: Report, story: StoryTree, options: Namespace, folder: Path, progress: Progress) -> Report:
    """Add what the story showed, and its pictures."""
    progress.show("the same retry with less of the memory")
    retries = retry_otherwise(story, Rehearsal(_checkpoint(options, folder), options.renderer))
    found = (*story.verdicts(), *verdicts(story, retries))
    progress.show("film and timeline")
    pictures = draw_story(folder, story, retries, options.renderer)
    progress.done()
    return replace(report, verdicts=(*report.verdicts, *found), pictures=tuple(map(str, pictures)))
