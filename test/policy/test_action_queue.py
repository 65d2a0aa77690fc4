# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flashrt_ros.policy.action_queue import ActionQueue, Chunk, Fault, UnfitChunkError, arrange_rows

PERIOD = 100
JOINTS = ("a", "b")


def chunk(observation: int, horizon: int = 5, start: int = 0, chunk_id: int = 1) -> Chunk:
    """Row r of chunk c holds 100 c + r in every joint."""
    rows = np.repeat(100.0 * chunk_id + np.arange(horizon)[:, None], len(JOINTS), axis=1)
    return Chunk(1, chunk_id, observation, rows, start, False)


def arrange(**changed: Any) -> np.ndarray:
    given = {"names": ["a", "b"], "data": [1.0, 2.0, 3.0, 4.0], "horizon": 2, "start": 0, "dt": PERIOD} | changed
    return arrange_rows(JOINTS, PERIOD, **given)


def run(queue: ActionQueue, *ticks: int) -> list[float | None]:
    rows = [queue.take(tick) for tick in ticks]
    return [None if row is None else float(row[0]) for row in rows]


def test_columns_are_matched_by_name() -> None:
    assert arrange().tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert arrange(names=["b", "a"]).tolist() == [[2.0, 1.0], [4.0, 3.0]]


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"names": ["a", "c"]}, Fault.JOINTS),
        ({"names": ["a", "a"]}, Fault.JOINTS),
        ({"names": ["a"], "data": [1.0, 2.0]}, Fault.JOINTS),
        ({"names": ["a", "b", "c"], "data": [0.0] * 6}, Fault.JOINTS),
        ({"horizon": 3}, Fault.SHAPE),
        ({"horizon": 0, "data": []}, Fault.SHAPE),
        ({"start": -1}, Fault.SHAPE),
        ({"start": 2}, Fault.SHAPE),
        ({"dt": 2 * PERIOD}, Fault.RATE),
        ({"data": [1.0, 2.0, 3.0, float("nan")]}, Fault.NOT_FINITE),
        ({"data": [1.0, float("inf"), 3.0, 4.0]}, Fault.NOT_FINITE),
    ],
)
def test_an_unfit_chunk_is_refused_whole(changed: dict[str, Any], fault: Fault) -> None:
    with pytest.raises(UnfitChunkError) as raised:
        arrange(**changed)
    assert raised.value.fault == fault


def test_the_joint_with_nan_is_named() -> None:
    with pytest.raises(UnfitChunkError, match="'b'"):
        arrange(data=[1.0, 2.0, 3.0, float("nan")])


def test_the_first_chunk_runs_from_its_start_however_late_it_is() -> None:
    queue = ActionQueue(PERIOD)
    queue.stage(chunk(observation=0, start=2))
    assert queue.replace()
    assert run(queue, 900, 1000) == [102.0, 103.0]
    assert (queue.chunk_id, queue.cursor, queue.remaining) == (1, 4, 1)


def test_a_later_chunk_begins_at_the_row_of_the_current_tick() -> None:
    queue = ActionQueue(PERIOD)
    queue.stage(chunk(observation=0))
    queue.replace()
    assert run(queue, 0, 100) == [100.0, 101.0]
    queue.stage(chunk(observation=100, chunk_id=2))  # answers the tick at 100, whose row ran
    queue.replace()
    assert run(queue, 200) == [201.0]


def test_an_observation_between_two_ticks_belongs_to_the_nearest() -> None:
    for observation, first in ((140, 201.0), (160, 200.0)):
        queue = ActionQueue(PERIOD)
        queue.stage(chunk(observation=0))
        queue.replace()
        run(queue, 0, 100)
        queue.stage(chunk(observation=observation, chunk_id=2))
        queue.replace()
        assert run(queue, 200) == [first]


def test_after_a_pause_the_plan_goes_on_without_a_jump() -> None:
    queue = ActionQueue(PERIOD)
    queue.stage(chunk(observation=0, horizon=2))
    queue.replace()
    assert run(queue, 0, 100, 200, 300, 400) == [100.0, 101.0, None, None, None]
    queue.stage(chunk(observation=100, chunk_id=2))
    queue.replace()
    assert run(queue, 500) == [201.0]


def test_a_chunk_whose_rows_are_all_past_is_dropped() -> None:
    queue = ActionQueue(PERIOD)
    queue.stage(chunk(observation=0))
    queue.replace()
    run(queue, 0, 100, 200)
    queue.stage(chunk(observation=0, horizon=3, chunk_id=2))
    assert not queue.replace()
    assert run(queue, 300) == [103.0]


def test_clear_forgets_chunks_and_history() -> None:
    queue = ActionQueue(PERIOD)
    queue.stage(chunk(observation=0))
    queue.replace()
    run(queue, 0, 100)
    queue.stage(chunk(observation=0, chunk_id=2))
    queue.clear()
    assert (queue.staged, queue.chunk_id, queue.cursor, queue.remaining) == (None, 0, 0, 0)
    assert queue.rows_run_since(0) == 0
    assert run(queue, 200) == [None]


def test_rows_ahead_stay_in_the_queue() -> None:
    queue = ActionQueue(PERIOD)
    queue.stage(chunk(0, horizon=4))
    queue.replace()
    run(queue, 0, 100)
    assert queue.ahead(5)[:, 0].tolist() == [102.0, 103.0]
    assert queue.ahead(1)[:, 0].tolist() == [102.0]
    assert run(queue, 200, 300, 400) == [102.0, 103.0, None]
    assert len(queue.ahead(1)) == 0
