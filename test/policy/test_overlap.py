# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Where chunks meet, as the queue of command_node executes them."""

from __future__ import annotations

import numpy as np
import pytest

from flashrt_ros.policy.action_queue import ActionQueue, Chunk
from flashrt_ros.policy.overlap import Continued, Overlap

PERIOD, HORIZON = 100, 12


class Hands:
    """A queue whose ticks are told to an overlap."""

    def __init__(self, overlap: Overlap) -> None:
        self.queue, self.overlap, self.now = ActionQueue(PERIOD), overlap, 1000
        overlap.restart()

    def take(self, chunk_id: int, observed: int) -> None:
        rows = np.zeros((HORIZON, 1))
        self.queue.stage(Chunk(1, chunk_id, observed, rows, 0, False))
        assert self.queue.replace()

    def tick(self, count: int = 1, *, told: bool = True) -> None:
        for _ in range(count):
            self.now += PERIOD
            queue, active = self.queue, self.queue.take(self.now) is not None
            if told:
                self.overlap.tick(self.now, queue.chunk_id, queue.cursor, queue.remaining, active=active)


@pytest.fixture
def hands() -> Hands:
    hands = Hands(Overlap(PERIOD))
    hands.take(1, hands.now)
    return hands


def test_the_first_chunk_goes_on_from_none() -> None:
    assert Overlap(PERIOD).begin(1000, 0.0) is None


@pytest.mark.parametrize("age", [0, 30, 100, 270])
def test_the_rows_of_both_chunks_stand_at_the_same_instants(hands: Hands, age: int) -> None:
    """The row that would have run without a new chunk is, in the old one's rows, the one that the new one begins at."""
    hands.tick(5)
    continued = hands.overlap.begin(hands.now - age, 0.0)
    observed = hands.now - age
    hands.tick(2)
    next_of_old = hands.queue.cursor
    hands.take(2, observed)
    assert continued is not None
    assert continued.row + hands.queue.cursor == next_of_old


@pytest.mark.parametrize("untold", [1, 2, 4])
def test_rows_that_ran_in_ticks_which_are_told_late_stand_before_the_new_chunk(hands: Hands, untold: int) -> None:
    hands.tick(5)
    hands.tick(untold, told=False)
    for ahead in (-40, 0, 40):
        continued = hands.overlap.begin(hands.now + ahead, 0.0)
        assert continued is not None
        assert continued.row == hands.queue.cursor - 1


def test_no_more_rows_run_in_ticks_that_are_told_late_than_were_left(hands: Hands) -> None:
    hands.tick(5)
    hands.tick(50, told=False)
    assert hands.overlap.begin(hands.now, 0.0) == Continued(1, HORIZON, 0)


def test_where_no_inference_was_timed_all_rows_that_are_left_are_held(hands: Hands) -> None:
    hands.tick(4)
    assert hands.overlap.begin(hands.now, None) == Continued(1, 3, HORIZON - 3)


def test_ticks_without_a_row_move_nothing(hands: Hands) -> None:
    hands.tick(HORIZON)
    before = hands.overlap.begin(hands.now, 0.0)
    hands.tick(3)
    assert hands.overlap.begin(hands.now - 3 * PERIOD, 0.0) == before


def test_the_delay_is_the_longest_of_the_newest_inferences(hands: Hands) -> None:
    hands.tick(2)
    first = hands.overlap.begin(hands.now, 2.5e-7)
    assert first == Continued(1, 1, 1 + 3)  # the row of the observation's tick, and 2.5 periods of computing
    for chunk_id, rows in ((2, 4), (3, 1)):
        observed = hands.now
        hands.tick(rows)
        hands.take(chunk_id, observed)
        hands.tick()
        continued = hands.overlap.begin(hands.now, 0.0)
        assert continued is not None
        assert (continued.chunk_id, continued.delay) == (chunk_id, 1 + 4)
    for chunk_id in range(4, 14):
        observed = hands.now
        hands.tick()
        hands.take(chunk_id, observed)
        hands.tick()
        continued = hands.overlap.begin(hands.now, 0.0)
    assert continued is not None
    assert continued.delay == 1 + 1


def test_a_clock_that_is_set_back_makes_no_delay_below_none(hands: Hands) -> None:
    """By less than a tick: command_node goes on."""
    hands.tick(4)
    observed = hands.now
    hands.overlap.begin(observed, 0.0)
    hands.now -= 19 * PERIOD // 10
    hands.tick()
    hands.take(2, observed)
    hands.tick()
    assert hands.overlap.begin(hands.now + 6 * PERIOD // 10, 0.0) == Continued(2, 1, 0)


def test_rows_are_counted_as_in_the_queue_when_the_clock_is_set_back(hands: Hands) -> None:
    hands.tick(4)
    hands.now -= 19 * PERIOD // 10
    hands.tick()
    observed = hands.now + 6 * PERIOD // 10
    continued = hands.overlap.begin(observed, 0.0)
    hands.take(2, observed)
    assert continued == Continued(1, 5, hands.queue.cursor)


def test_another_epoch_forgets_the_rows_and_not_the_latencies(hands: Hands) -> None:
    hands.tick(2)
    hands.overlap.begin(hands.now, 0.0)
    observed = hands.now
    hands.tick(4)
    hands.take(2, observed)
    hands.tick()
    again = Hands(hands.overlap)
    assert again.overlap.begin(again.now, 0.0) is None
    again.take(3, again.now)
    again.tick()
    assert again.overlap.begin(again.now, 0.0) == Continued(3, 0, 1 + 4)


def test_lockstep_has_a_delay_of_its_own() -> None:
    hands = Hands(Overlap(PERIOD, fixed_delay=3))
    hands.take(1, hands.now)
    hands.tick(4)
    assert hands.overlap.begin(hands.now, 9.0) == Continued(1, 3, 3)
