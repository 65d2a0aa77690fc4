# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from flashrt_ros.node.lateness import Lateness

PERIOD = 100


def test_lateness_is_counted_from_when_the_tick_was_due() -> None:
    late = Lateness(PERIOD)
    for tick, delay in enumerate((0, 10, 0, 30)):
        late.add(tick * PERIOD + delay, PERIOD - delay)
    assert late.percentiles() == pytest.approx((10e-9, 30e-9, 30e-9), rel=0.02)
    assert late.lost == 0


def test_ticks_that_a_stall_swallowed_are_lost() -> None:
    late = Lateness(PERIOD)
    late.add(0, PERIOD)
    late.add(350, 50)  # due at 100; 200 and 300 never ran
    assert late.lost == 2
    assert late.percentiles()[2] == pytest.approx(250e-9)


def test_a_clock_that_was_set_back_is_no_lateness() -> None:
    late = Lateness(PERIOD)
    late.add(10_000, PERIOD)
    late.add(0, PERIOD)
    late.add(100, PERIOD)
    assert (late.percentiles(), late.lost) == ((0.0, 0.0, 0.0), 0)


def test_nothing_seen_is_zero() -> None:
    assert Lateness(PERIOD).percentiles() == (0.0, 0.0, 0.0)
