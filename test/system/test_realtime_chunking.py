# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""pi0 on a moving robot, with the strategy rtc and with sync beside it, and the replay of what was recorded."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

pytest.importorskip("flashrt_interfaces")

from flashrt_ros.models.tiny_pi0 import write_tiny_pi0
from flashrt_ros.runtime.errors import ErrorCode
from flashrt_ros.tools.replay_job import Job, run_job

HORIZON, STEPS = 10, 60
VIEWS = {"front": "base_0_rgb", "wrist": "left_wrist_0_rgb"}


@dataclass(frozen=True)
class Takeover:
    """A chunk in the place of another: its row that ran first, and how many rows of the other had not run.

    `missed`: from what would have been commanded then without it, mean over the joints, rad.
    """

    row: int
    left: int
    missed: float


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pi0 whose inference takes a control period or more, also on a machine with little to do."""
    return write_tiny_pi0(tmp_path_factory.mktemp("pi0"), "pi0", action_mode="delta", steps=60)


@pytest.fixture(scope="module")
def with_strategy(contract: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The contract with another strategy and pi0's names of the views, and limits that no command of noise meets."""

    def write(strategy: str) -> Path:
        values = yaml.safe_load(contract.read_text())
        observed, action = values["observation"], values["action"]
        observed["images"] = {VIEWS[key]: image for key, image in observed["images"].items()}
        limits = {
            "position": {joint: [-50.0, 50.0] for joint in action["joints"]},
            "step": dict.fromkeys(action["joints"], 50.0),
        }
        action |= {"strategy": strategy, "threshold": 7, "start_tolerance": 50.0, "limits": limits}
        path = tmp_path_factory.mktemp(strategy) / "contract.yaml"
        path.write_text(yaml.safe_dump(values))
        return path

    return write


@pytest.fixture(scope="module")
def recorded(
    client: Any, until: Any, start_nodes: Callable[[Path], Any], with_strategy: Callable[[str], Path]
) -> dict[str, tuple[list[Takeover], Path]]:
    """By strategy: how the chunks of a goal met, and the incident."""
    found = {}
    for strategy in ("sync", "rtc"):
        with start_nodes(with_strategy(strategy)):
            client.chunks.clear()
            client.ticks.clear()
            result = client.run(instruction="press the red button", seed=5, step_limit=STEPS).result()
            assert (result.error_code, result.reason) == (ErrorCode.NONE, "step_limit"), result
            if strategy == "rtc":
                until(lambda: int(client.figure("policy: inference", "rows held") or 0) >= 1, "how many rows were held")
            found[strategy] = (
                takeovers(client.chunks, client.ticks),
                Path(client.call("save_incident", reason="the test").path),
            )
    return found


def takeovers(chunks: list[Any], ticks: list[Any]) -> list[Takeover]:
    rows = {chunk.chunk_id: np.array(chunk.data).reshape(chunk.horizon, -1) for chunk in chunks}
    active, found = [tick for tick in ticks if tick.active], []
    for before, tick in itertools.pairwise(active):
        if tick.chunk_id != before.chunk_id:
            old, new = rows[before.chunk_id], rows[tick.chunk_id]
            would_be = old[min(before.cursor, HORIZON - 1)]
            missed = float(np.abs(new[tick.cursor - 1] - would_be).mean())
            found.append(Takeover(tick.cursor - 1, before.remaining, missed))
    return found


def test_a_chunk_takes_over_without_a_jump(recorded: dict[str, tuple[list[Takeover], Path]]) -> None:
    rtc, sync = recorded["rtc"][0], recorded["sync"][0]
    in_time = [takeover for takeover in rtc if takeover.left and takeover.row]  # a busy machine may be late once
    assert len(in_time) >= 5
    assert {takeover.left for takeover in sync} == {0}
    assert np.median([takeover.missed for takeover in in_time]) < 0.2 * np.mean([takeover.missed for takeover in sync])


def test_the_recording_is_replayed_to_the_byte(
    recorded: dict[str, tuple[list[Takeover], Path]], checkpoint: Path
) -> None:
    takeovers, incident = recorded["rtc"]
    result = run_job(Job(str(incident), (str(checkpoint),)))
    run = result.runs[0]
    assert (result.error, result.verdict, run.exact, run.troubles) == ("", "equal", True, [])
    assert len(run.chunks) > len(takeovers)
    assert run.commands is not None
    assert run.commands.difference == 0.0
    assert run.commands.compared >= STEPS
