# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np
import pytest

from flashrt_ros.policy.contract_action import Limits
from flashrt_ros.policy.limits import Saturation, SpeedSaturation


def saturation() -> Saturation:
    return Saturation(("a", "b"), Limits(low=(-1.0, 0.0), high=(1.0, 2.0), step=(0.1, 0.5)))


def test_what_is_within_the_limits_is_unchanged_and_not_counted() -> None:
    limits = saturation()
    assert limits.apply(np.array([0.05, 0.5]), np.zeros(2)).tolist() == [0.05, 0.5]
    assert limits.counts == {}


def test_position_and_step_bound_each_joint_and_are_counted() -> None:
    limits = saturation()
    assert limits.apply(np.array([5.0, 0.5]), np.array([0.95, 0.5])).tolist() == [1.0, 0.5]
    assert limits.apply(np.array([0.0, 0.5]), np.array([0.95, 0.5])).tolist() == [0.85, 0.5]
    assert limits.apply(np.array([0.0, -9.0]), np.array([0.0, 0.2])).tolist() == [0.0, 0.0]
    assert limits.counts == {"a": 2, "b": 1}


def test_random_rows_never_leave_the_limits() -> None:
    limits, random = saturation(), np.random.default_rng(0)
    before = np.array([0.0, 1.0])
    for row in random.normal(scale=3.0, size=(500, 2)):
        after = limits.apply(row, before)
        assert (np.abs(after - before) <= np.array([0.1, 0.5]) + 1e-12).all()
        assert (after >= (-1.0, 0.0)).all()
        assert (after <= (1.0, 2.0)).all()
        before = after


def test_a_path_is_bounded_as_its_rows_will_be_and_not_counted() -> None:
    limits, random = saturation(), np.random.default_rng(1)
    for scale in (0.01, 1.0):
        before = np.array([0.0, 1.0])
        rows = before + np.cumsum(random.normal(scale=scale, size=(20, 2)), axis=0)
        path = limits.path(rows, before)
        assert limits.counts == {}
        expected, at = saturation(), before
        for row, bounded in zip(rows, path, strict=True):
            at = expected.apply(row, at)
            assert np.allclose(bounded, at)
    assert limits.path(rows[:0], before).shape == (0, 2)


RATE = 10.0
SLOW = (0.01, 0.01)  # of a tick's way in the next tick: 1 rad/s2


def speeds(acceleration: tuple[float, float] | None = None) -> SpeedSaturation:
    """Of 1 and 2 rad/s."""
    limits = Limits(low=(-1.0, 0.0), high=(1.0, 2.0), step=(0.1, 0.2), acceleration=acceleration)
    return SpeedSaturation(("a", "b"), limits, RATE)


def test_speeds_are_bounded_by_velocity_and_counted() -> None:
    limits = speeds()
    limits.look(np.array([0.0, 1.0]))
    assert limits.apply(np.array([-1.5, 1.5]), np.zeros(2)).tolist() == [-1.0, 1.5]
    assert limits.counts == {"a": 1}


def test_speeds_change_by_no_more_than_the_acceleration() -> None:
    limits = speeds(SLOW)
    limits.look(np.array([0.0, 1.0]))
    assert limits.apply(np.array([0.5, 0.05]), np.zeros(2)).tolist() == pytest.approx([0.1, 0.05])


def test_at_a_position_limit_a_joint_may_only_go_away_from_it() -> None:
    limits = speeds()
    limits.look(np.array([1.2, 0.0]))
    assert limits.apply(np.array([0.5, -0.5]), np.zeros(2)).tolist() == [0.0, 0.0]
    assert limits.apply(np.array([-0.5, 0.5]), np.zeros(2)).tolist() == [-0.5, 0.5]
    limits.look(np.array([0.99, 0.02]))
    assert limits.apply(np.array([0.5, -0.5]), np.zeros(2)).tolist() == pytest.approx([0.1, -0.2])


@pytest.mark.parametrize("acceleration", [None, SLOW])
def test_whatever_speeds_are_wanted_the_joints_stay_within_their_position_limits(
    acceleration: tuple[float, float] | None,
) -> None:
    limits, random = speeds(acceleration), np.random.default_rng(0)
    at, speed, wanted = np.array([0.0, 1.0]), np.zeros(2), np.zeros(2)
    for tick in range(2000):
        if tick % 30 == 0:
            wanted = random.normal(scale=2.0, size=2)
        limits.look(at)
        speed = limits.apply(wanted, speed)
        at = at + speed / RATE
        assert (at >= np.array([-1.0, 0.0]) - 1e-12).all()
        assert (at <= np.array([1.0, 2.0]) + 1e-12).all()
    assert set(limits.counts) == {"a", "b"}


def test_towards_a_position_limit_a_joint_slows_down_as_its_acceleration_allows() -> None:
    limits, at, found = speeds(SLOW), np.array([0.0, 1.0]), [np.zeros(2)]
    for _ in range(60):
        limits.look(at)
        found.append(limits.apply(np.array([1.0, 2.0]), found[-1]))
        at = at + found[-1] / RATE
    drops = -np.diff(np.stack(found)[:, 0])
    assert drops.max() <= RATE * SLOW[0] + 1e-9
    assert at[0] == pytest.approx(1.0)
