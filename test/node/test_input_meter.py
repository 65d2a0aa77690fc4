# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from flashrt_ros.node.input_meter import InputMeter


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize(
    ("numbers", "dropped"),
    [([1, 2, 3], 0), ([1, 2, 5, 6], 2), ([7, 1, 2], 0), ([1, 90_000], 0), ([None, None], 0), ([1, None, 9], 0)],
    ids=["all", "a gap", "another publisher", "far", "not told", "told now and then"],
)
def test_gaps_in_the_numbers_are_dropped_messages(clock: Clock, numbers: list[int | None], dropped: int) -> None:
    meter = InputMeter(0.3, clock)
    for number in numbers:
        meter.note(number)
    assert (meter.delivered, meter.dropped) == (len(numbers), dropped)


def test_a_message_behind_the_deadline_is_late(clock: Clock) -> None:
    meter = InputMeter(0.3, clock)
    for pause in (5.0, 0.29, 0.31, 0.1):
        clock.now += pause
        meter.note(None)
    assert meter.late == 1


def test_the_rate_is_that_since_it_was_asked_before(clock: Clock) -> None:
    meter = InputMeter(0.3, clock)
    for _ in range(30):
        meter.note(None)
    clock.now += 1.0
    assert meter.rate() == pytest.approx(30.0)
    clock.now += 0.5
    meter.note(None)
    assert meter.rate() == pytest.approx(2.0)
    assert meter.rate() == 0.0
