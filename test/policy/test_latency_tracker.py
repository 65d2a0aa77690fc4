# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from flashrt_ros.policy.latency_tracker import LatencyTracker

MILLISECOND = 1_000_000


def test_the_first_answer_and_the_first_after_a_restart_are_left_out() -> None:
    tracker = LatencyTracker()
    for latency in (700, 50, 60):
        tracker.add(latency * MILLISECOND, computed=True)
    tracker.restart()
    tracker.add(900 * MILLISECOND, computed=True)
    assert len(tracker) == 2
    assert tracker.last == 60 * MILLISECOND
    assert tracker.percentiles() == pytest.approx((0.055, 0.0599))


def test_a_reinstated_chunk_is_left_out() -> None:
    tracker = LatencyTracker()
    tracker.add(MILLISECOND, computed=False)
    tracker.add(50 * MILLISECOND, computed=True)
    tracker.add(MILLISECOND, computed=False)
    assert tracker.percentiles() == pytest.approx((0.05, 0.05))


def test_no_sample_gives_zeros_and_old_ones_are_forgotten() -> None:
    tracker = LatencyTracker()
    assert (tracker.last, tracker.percentiles()) == (0, (0.0, 0.0))
    for latency in [1] * 10 + [2] * 2000:
        tracker.add(latency * MILLISECOND, computed=True)
    assert tracker.percentiles() == pytest.approx((0.002, 0.002))
