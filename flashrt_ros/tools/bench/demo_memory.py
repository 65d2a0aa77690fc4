# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the demo's policy does from the boundary after the light, with all, some or none of its state restored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flashrt_ros.demo.rehearsal import LOOK_TICKS, Rehearsal, Take, mix, other_seed
from flashrt_ros.demo.task import Disturbance, Kind, Outcome, Scenario, draw_scenario
from flashrt_ros.runtime.capsule import Capsule

ORIGINAL = "original run"
RESTORED = "all restored"
ROWS_ONLY = "KV rows restored, the rest from another episode"
REST_ONLY = "all but KV rows restored, those from another episode"
UNSEEN = "nothing restored, the light never seen"
CONDITIONS = (ORIGINAL, RESTORED, ROWS_ONLY, REST_ONLY, UNSEEN)


@dataclass(frozen=True, slots=True)
class Case:
    """One seed: the outcome under each of CONDITIONS.

    Attributes:
        seed: of the episode.
        successes: by condition.
        confused: of those that failed, whether the other episode's button was pressed.
        same: whether the restored run commanded what the original one did, bit for bit.
    """

    seed: int
    successes: dict[str, bool]
    confused: dict[str, bool]
    same: bool


def try_memories(rehearsal: Rehearsal, seed: int) -> Case:
    """Play "press the button that lit up" from the boundary after the light under each condition."""
    scenario = draw_scenario(Kind.LIT, seed)
    other = draw_scenario(Kind.LIT, other_seed(scenario, seed))
    foreign = look(rehearsal, other, other_seed(scenario, seed))
    memory = look(rehearsal, scenario, seed)
    world = rehearsal.task.save()

    def play(remember: Callable[[], None]) -> Take:
        rehearsal.task.load(world)
        remember()
        return rehearsal.play()

    takes = {
        ORIGINAL: rehearsal.play(),
        RESTORED: play(lambda: rehearsal.recall(memory)),
        ROWS_ONLY: play(lambda: rehearsal.recall(mix(rows_of=memory, rest_of=foreign))),
        REST_ONLY: play(lambda: rehearsal.recall(mix(rows_of=foreign, rest_of=memory))),
        UNSEEN: play(lambda: rehearsal.begin(seed)),
    }
    return Case(
        seed,
        {name: take.outcome is Outcome.SUCCESS for name, take in takes.items()},
        {name: take.presses[-1:] == other.lights for name, take in takes.items()},
        takes[RESTORED].same_actions(takes[ORIGINAL]),
    )


def look(rehearsal: Rehearsal, scenario: Scenario, seed: int, pushes: Sequence[Disturbance] = ()) -> Capsule:
    """Play an episode until the light is out, and return what is remembered."""
    rehearsal.stage(scenario, seed, pushes)
    rehearsal.begin(seed)
    rehearsal.play(LOOK_TICKS)
    return rehearsal.memory()


def reset_is_cold_start(checkpoint: Path, renderer: str, seed: int) -> list[str]:
    """Return how an episode after a reset by capsule differs from one after a cold start; empty: in nothing."""
    used, fresh = Rehearsal(checkpoint, renderer), Rehearsal(checkpoint, renderer)
    look(used, draw_scenario(Kind.LIT, seed + 1), seed + 1)
    scenario = draw_scenario(Kind.LIT, seed)
    used.stage(scenario, seed)
    report = used.session.reset(scenario.instruction, seed)
    fresh.stage(scenario, seed)
    fresh.begin(seed)
    found = [] if report.prefilled_tokens == 0 else [f"the reset prefilled {report.prefilled_tokens} tokens"]
    for moment in ("at the start", "at the end"):
        one, other = used.session.digests(), fresh.session.digests()
        found += [f"{name} differs {moment}" for name in one if one[name] != other[name]]
        if moment == "at the start" and not used.play().same_actions(fresh.play()):
            found.append("the actions differ")
    return found
