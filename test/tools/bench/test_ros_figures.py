# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace

import pytest

from flashrt_ros.tools.bench.ros_figures import Figures, Spread, lost_alone, verdicts

PERIOD = 100
GRID = [1000 + PERIOD * tick for tick in range(40)]
FIGURES = Figures(
    device="cpu",
    period=0.02,
    control=Spread(0.0, 0.0025, 0.1),
    sleeper=Spread(0.0, 0.001, 0.1),
    lost_alone=0,
    snapshot=[0.02],
    listing=[0.02],
    sample=[9.0],
    restore=[0.017],
    closing=[0.02],
    stage=0.007,
    inferences=10.0,
    lacking=0.01,
    policy_cpu=0.15,
    command_cpu=0.10,
)


def without(ticks: list[int], *slots: int) -> list[int]:
    return [tick for slot, tick in enumerate(ticks) if slot not in slots]


def test_figures_at_their_bars_hold() -> None:
    assert [verdict.what for verdict in verdicts(FIGURES) if not verdict.holds] == []


@pytest.mark.parametrize(
    ("name", "value", "broken"),
    [
        ("control", Spread(0.0, 0.00251, 0.1), "lateness"),
        ("lost_alone", 1, "lost"),
        ("snapshot", [0.0201], "snapshot"),
        ("listing", [0.0201], "list_capsules"),
        ("restore", [0.0171], "restore"),
        ("lacking", 0.0101, "frames"),
        ("policy_cpu", 0.151, "outside inference"),
        ("command_cpu", 0.101, "outside inference"),
        ("closing", [0.001, 0.0201], "closed gate"),
    ],
)
def test_each_figure_beyond_its_bar_is_told(name: str, value: object, broken: str) -> None:
    (failed,) = [verdict for verdict in verdicts(replace(FIGURES, **{name: value})) if not verdict.holds]
    assert broken in failed.what


def test_lateness_is_never_over_half_a_period_however_late_the_sleeper_is() -> None:
    late = replace(FIGURES, sleeper=Spread(0.0, 0.009, 0.1), control=Spread(0.0, 0.0101, 0.1))
    (failed,) = [verdict for verdict in verdicts(late) if not verdict.holds]
    assert failed.how == "half a period"


def test_the_light_load_has_fewer_bars() -> None:
    light = replace(FIGURES, sample=[], policy_cpu=0.9, lacking=0.5, control=Spread(0.0, 0.0025, 0.1))
    assert all(verdict.holds for verdict in verdicts(light))
    assert len(verdicts(light)) == len(verdicts(FIGURES)) - 3


def test_a_late_tick_is_not_lost() -> None:
    late = [tick + (60 if slot == 7 else slot % 3) for slot, tick in enumerate(GRID)]
    assert lost_alone(late, GRID, PERIOD) == 0


def test_ticks_that_only_one_lost_are_counted() -> None:
    assert lost_alone(without(GRID, 10, 11, 20), GRID, PERIOD) == 3
    assert lost_alone(GRID, without(GRID, 10), PERIOD) == 0


def test_what_the_sleeper_lost_at_that_time_is_excused() -> None:
    sleeper = [tick + 37 for tick in without(GRID, 10)]
    assert lost_alone(without(GRID, 10, 20), sleeper, PERIOD) == 1


def test_a_late_first_tick_does_not_shift_the_grid() -> None:
    assert lost_alone([GRID[0] + 70, *without(GRID[1:], 10)], GRID, PERIOD) == 1
