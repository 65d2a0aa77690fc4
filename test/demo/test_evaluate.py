# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The shipped policy at its task."""

from __future__ import annotations

import json

import pytest

from flashrt_ros.demo.evaluate import WEIGHTS, Played, Player, main, summarise, wilson
from flashrt_ros.demo.task import Kind, Outcome


def test_wilson_intervals() -> None:
    assert wilson(50, 50) == pytest.approx((0.9287, 1.0), abs=1e-4)
    assert wilson(8, 20) == pytest.approx((0.2188, 0.6134), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)


def test_a_summary_counts_outcomes() -> None:
    played = [Played("lit", 0, Outcome.SUCCESS, 20), Played("lit", 1, Outcome.WRONG, 40)]
    assert summarise(played) == {
        "lit": {
            "episodes": 2,
            "success": 0.5,
            "interval": list(wilson(1, 2)),
            "outcomes": {"success": 1, "wrong button": 1},
            "seconds": 3.0,
        }
    }


def test_the_shipped_policy_is_small_and_says_what_it_is() -> None:
    assert (WEIGHTS / "model.safetensors").stat().st_size <= 15_000_000
    assert json.loads((WEIGHTS / "config.json").read_text())["flashrt"]["trained"] is True
    assert "Measured" in (WEIGHTS / "MODEL_CARD.md").read_text()


def test_the_shipped_policy_presses_the_right_button() -> None:
    """Who presses any button is right once in four times: 7 or more of 8 times with a probability of 0.0004."""
    player = Player(WEIGHTS, "drawn")
    played = [player.play(kind, seed) for kind in (Kind.NAMED, Kind.LIT) for seed in range(1000, 1004)]
    assert sum(episode.outcome == Outcome.SUCCESS for episode in played) >= 7, played


def test_a_policy_beside_the_expert_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--expert", "--checkpoint", str(WEIGHTS)])
    assert "argument --checkpoint: not allowed with argument --expert" in capsys.readouterr().err
