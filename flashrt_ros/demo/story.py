# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Tells the story: plays it over ROS, asks what else could have come of it, and makes film and timeline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flashrt_ros.demo.camera import Camera
from flashrt_ros.demo.canvas import BAD, GOOD, MIXED, Colour
from flashrt_ros.demo.film import PICTURE_WIDTH, THUMBNAIL_WIDTH, Branch, Film, Past, write_gif
from flashrt_ros.demo.rehearsal import LOOK_TICKS, Rehearsal, Take, mix, other_seed
from flashrt_ros.demo.report import Verdict
from flashrt_ros.demo.story_tree import LOOK_STEPS, PUSH, PUSHED, RETRY, StoryTree
from flashrt_ros.demo.task import Disturbance, Outcome, draw_scenario
from flashrt_ros.demo.timeline import STILL_PIXELS, draw_timeline
from flashrt_ros.demo.world import BUTTONS

_LONGEST = 60
"""Ticks that a retry without the right memory gets in the film."""


@dataclass(frozen=True, slots=True)
class Retries:
    """The retry with all of the memory, with the KV rows alone, and with nothing; what the other episode showed."""

    whole: Take
    rows_only: Take
    nothing: Take
    other_seen: list[bytes]
    other_light: int


def retry_otherwise(story: StoryTree, rehearsal: Rehearsal) -> Retries:
    """Play the story's retry again in this process, from the same world, with other memories."""
    heard, scenario, seed = story.heard, story.scenario, story.seed
    other = other_seed(scenario, seed)
    other_scenario = draw_scenario(scenario.kind, other)
    rehearsal.stage(other_scenario, other)
    rehearsal.begin(other)
    seen = rehearsal.play(LOOK_TICKS, keep_states=True)
    other_memory = rehearsal.memory()

    rehearsal.stage(scenario, seed, [Disturbance(round(PUSH[0]), round(PUSH[1]), tuple(PUSH[2:]))])
    rehearsal.begin(seed)
    for tick in sorted(heard.chunks):
        if tick <= LOOK_STEPS:
            rehearsal.observe(heard.states[tick])
    memory = rehearsal.memory()

    def retry(limit: int) -> Take:
        rehearsal.task.load(heard.states[story.retry_tick])
        return rehearsal.play(limit, keep_states=True)

    rehearsal.recall(memory, RETRY)
    whole = retry(_LONGEST)
    rehearsal.recall(mix(memory, other_memory), RETRY)
    rows_only = retry(_LONGEST)
    rehearsal.begin(seed)
    other_seen = [seen.states[tick] for tick in seen.chunks]
    return Retries(whole, rows_only, retry(_LONGEST), other_seen, other_scenario.lights[0])


def verdicts(story: StoryTree, retries: Retries) -> tuple[Verdict, ...]:
    """Judge the retries against the one over ROS."""
    heard, whole = story.heard, retries.whole
    chunks = {tick: chunk for tick, chunk in heard.chunks.items() if tick >= story.retry_tick}
    same = [tick for tick in whole.chunks if tick in chunks and whole.chunks[tick].tobytes() == chunks[tick].tobytes()]
    said = f"with the KV rows alone, {_confused(retries)}; with nothing, {_outcome(retries.nothing)}"
    others = [take.same_actions(whole) for take in (retries.rows_only, retries.nothing)]
    detail = f"{len(same)} of {len(whole.chunks)} chunks are equal"
    return (
        Verdict("the same retry without ROS does the same", len(same) == len(whole.chunks), detail),
        Verdict("with less than all of its memory it acts otherwise", not any(others), said),
    )


def draw_story(folder: Path, story: StoryTree, retries: Retries, renderer: str) -> list[Path]:
    """Write film and timeline into a folder; returns the files."""
    film, timeline = folder / "demo.gif", folder / "demo_timeline.png"
    _write_film(film, story, retries, renderer)
    camera = Camera(story.scenario, story.seed, STILL_PIXELS, THUMBNAIL_WIDTH, renderer)
    try:
        draw_timeline(story.heard, story.scenario, camera, PUSHED, story.retry_tick).save(timeline)
    finally:
        camera.close()
    return [film, timeline]


def _write_film(path: Path, story: StoryTree, retries: Retries, renderer: str) -> None:
    """Make the film: what happened over ROS, and beside it the retries with less memory."""
    heard, retry, goal = story.heard, story.retry_tick, story.scenario.goals[0]
    seen = [heard.states[tick] for tick in sorted(heard.chunks) if tick <= LOOK_STEPS]
    end = max(heard.states)
    over_ros = Take(
        {tick: state for tick, state in heard.states.items() if tick >= retry},
        {tick: chunk for tick, chunk in heard.chunks.items() if tick >= retry},
        outcome=Outcome.SUCCESS if story.succeeded else retries.whole.outcome,
        tick=end,
        presses=(goal,) if story.succeeded else (),
    )
    past = Past(
        instruction=story.scenario.instruction,
        states={tick: state for tick, state in heard.states.items() if tick <= retry},
        observed=[tick for tick in sorted(heard.chunks) if tick < retry],
        boundary=LOOK_STEPS,
        pushed=PUSHED,
        retry=retry,
        rollback=story.rollback_time,
    )
    branches = [
        _branch("a capsule: everything restored", GOOD, over_ros, (seen, seen), _outcome(over_ros)),
        _branch("the KV rows alone restored", MIXED, retries.rows_only, (seen, retries.other_seen), _confused(retries)),
        _branch("nothing restored", BAD, retries.nothing, ([], []), _outcome(retries.nothing)),
    ]
    camera = Camera(story.scenario, story.seed, PICTURE_WIDTH, THUMBNAIL_WIDTH, renderer)
    try:
        write_gif(path, list(Film(camera, past, branches).frames()))
    finally:
        camera.close()


def _branch(title: str, colour: Colour, take: Take, memory: tuple[list[bytes], list[bytes]], verdict: str) -> Branch:
    rows, rest = memory
    return Branch(title, colour, take.states, sorted(take.chunks), rows, rest, verdict, take.outcome is Outcome.SUCCESS)


def _confused(retries: Retries) -> str:
    """The outcome with KV rows alone; pressing what lit up in the other episode is worth telling."""
    take = retries.rows_only
    if take.outcome is Outcome.WRONG and take.presses[-1] == retries.other_light:
        return f"wrong: {BUTTONS[take.presses[-1]]}, the other episode's light"
    return _outcome(take)


def _outcome(take: Take) -> str:
    pressed = ", ".join(BUTTONS[button] for button in take.presses)
    if take.outcome is Outcome.SUCCESS:
        return f"right: {pressed}"
    return f"wrong: {pressed}" if pressed else f"pressed nothing in {_LONGEST / 10:.0f} s"
