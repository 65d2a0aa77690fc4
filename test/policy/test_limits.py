# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np

from flashrt_ros.policy.contract_action import Limits
from flashrt_ros.policy.limits import Saturation


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
