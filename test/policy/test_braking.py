# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np
import pytest

from flashrt_ros.policy.braking import PositionBraking, SpeedBraking
from flashrt_ros.policy.contract_action import Limits
from flashrt_ros.policy.limits import Saturation, SpeedSaturation

LIMITS = Limits(low=(-1.0, -1.0), high=(1.0, 1.0), step=(0.1, 0.1))
ACCELERATION = (0.02, 0.01)


def path(position: list[float], velocity: list[float], count: int = 100) -> np.ndarray:
    braking = PositionBraking(Saturation(("a", "b"), LIMITS), ACCELERATION)
    return braking.rows(np.array(position), np.array(velocity), count)


def test_each_joint_slows_down_by_its_own_acceleration_until_two_targets_are_equal() -> None:
    rows = path([0.0, 0.5], [0.05, -0.03])
    assert rows[:, 0] == pytest.approx([0.03, 0.04, 0.04])
    assert rows[:, 1] == pytest.approx([0.48, 0.47, 0.47])


def test_joints_at_rest_are_commanded_where_they_are_once() -> None:
    assert path([0.2, 0.3], [0.0, 0.0]).tolist() == [[0.2, 0.3]]


def test_no_more_rows_are_made_than_asked_for() -> None:
    assert path([0.0, 0.0], [0.1, 0.1], 2)[:, 0] == pytest.approx([0.08, 0.14])


def test_at_a_position_limit_a_joint_stops_at_once() -> None:
    assert path([0.95, 0.0], [0.1, 0.0])[:, 0] == pytest.approx([1.0, 1.0])


def test_from_any_motion_limits_are_kept_and_rest_is_reached() -> None:
    random = np.random.default_rng(0)
    for _ in range(100):
        before = random.uniform(-0.9, 0.9, 2)
        position = np.clip(before + random.uniform(-0.1, 0.1, 2), -1.0, 1.0)
        rows = path(position.tolist(), (position - before).tolist())
        steps = np.diff(np.concatenate([before[None], position[None], rows]), axis=0)
        assert (np.abs(rows) <= 1.0).all()
        assert (np.abs(steps[1:]) <= np.abs(steps[:-1]) + 1e-12).all()
        free = (np.abs(rows) < 1.0).all(axis=0)
        assert (np.abs(np.diff(steps, axis=0)) <= np.array(ACCELERATION) + 1e-12)[:, free].all()
        assert not steps[-1].any()


def test_speeds_fall_to_zero_by_the_acceleration() -> None:
    limits = Limits(low=(-1.0, -1.0), high=(1.0, 1.0), step=(0.1, 0.1), acceleration=(0.02, 0.01))
    braking = SpeedBraking(SpeedSaturation(("a", "b"), limits, 10.0))
    rows = braking.rows(np.array([0.5, -0.25]), np.zeros(2), 100)
    assert rows[:, 0] == pytest.approx([0.3, 0.1, 0.0])
    assert rows[:, 1] == pytest.approx([-0.15, -0.05, 0.0])
    assert [braking.rests(row, np.ones(2)) for row in rows] == [False, False, True]
    assert braking.rows(np.zeros(2), np.zeros(2), 100).tolist() == [[0.0, 0.0]]
