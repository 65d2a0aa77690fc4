# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Memory and world under control: the same again, something else, and what cannot be mixed."""

from __future__ import annotations

import pytest

from flashrt_ros.demo.evaluate import WEIGHTS
from flashrt_ros.demo.rehearsal import LOOK_TICKS, Rehearsal, mix, other_seed
from flashrt_ros.demo.task import Kind, draw_scenario

SEED = 7


@pytest.fixture(scope="module")
def rehearsal() -> Rehearsal:
    return Rehearsal(WEIGHTS, "drawn")


def test_the_other_episode_lights_another_button() -> None:
    scenario = draw_scenario(Kind.LIT, SEED)
    assert draw_scenario(Kind.LIT, other_seed(scenario, SEED)).lights != scenario.lights


def test_what_is_recalled_plays_the_same_and_a_mixture_does_not(rehearsal: Rehearsal) -> None:
    scenario = draw_scenario(Kind.LIT, SEED)
    other = other_seed(scenario, SEED)
    rehearsal.stage(draw_scenario(Kind.LIT, other), other)
    rehearsal.begin(other)
    rehearsal.play(LOOK_TICKS)
    foreign = rehearsal.memory()
    rehearsal.stage(scenario, SEED)
    rehearsal.begin(SEED)
    rehearsal.play(LOOK_TICKS)
    memory, world = rehearsal.memory(), rehearsal.task.save()
    takes = [rehearsal.play(6)]
    for recalled in (memory, mix(rows_of=memory, rest_of=foreign), mix(rows_of=foreign, rest_of=memory)):
        rehearsal.task.load(world)
        rehearsal.recall(recalled)
        takes.append(rehearsal.play(6))
    original, again, rows_only, rest_only = takes
    assert len(original.commands) == 6
    assert again.same_actions(original)
    assert not rows_only.same_actions(original)
    assert not rest_only.same_actions(original)


def test_a_retry_draws_other_noise(rehearsal: Rehearsal) -> None:
    rehearsal.stage(draw_scenario(Kind.LIT, SEED), SEED)
    rehearsal.begin(SEED)
    memory, world = rehearsal.memory(), rehearsal.task.save()
    takes = []
    for retry in (0, 1, 1):
        rehearsal.task.load(world)
        rehearsal.recall(memory, retry)
        takes.append(rehearsal.play(1))
    assert not takes[0].same_actions(takes[1])
    assert takes[1].same_actions(takes[2])


def test_episodes_of_other_lengths_do_not_mix(rehearsal: Rehearsal) -> None:
    rehearsal.stage(draw_scenario(Kind.LIT, SEED), SEED)
    rehearsal.begin(SEED)
    short = rehearsal.memory()
    rehearsal.play(1)
    with pytest.raises(ValueError, match="rows up to"):
        mix(short, rehearsal.memory())
