# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np
import pytest

from flashrt_ros.policy.contract_action import Limits
from flashrt_ros.policy.plausibility import Plausibility

PERIOD = 100


@pytest.fixture
def plausibility() -> Plausibility:
    limits = Limits(low=(-1.0, 0.0), high=(1.0, 2.0), step=(0.1, 0.1))
    return Plausibility(("a", "b"), limits, PERIOD, tolerance=(0.2, 0.2))


@pytest.mark.parametrize(("a", "b", "named"), [(1.19, 1.0, ""), (1.21, 1.0, "'a'"), (0.0, -0.21, "'b'")])
def test_a_joint_may_be_outside_its_limits_by_the_tolerance(
    plausibility: Plausibility, a: float, b: float, named: str
) -> None:
    trouble = plausibility.trouble(np.array([a, b]), 0)
    assert (named in trouble) if named else trouble == ""


def test_the_message_names_joint_value_and_limits(plausibility: Plausibility) -> None:
    trouble = plausibility.trouble(np.array([57.3, 0.0]), 0)
    assert all(part in trouble for part in ("'a'", "57.3000", "[-1, 1]", "0.2", "rad or m"))


def test_a_joint_that_is_pushed_moves_no_faster_than_ten_times_its_limit(plausibility: Plausibility) -> None:
    assert plausibility.trouble(np.array([0.0, 1.0]), 0) == ""
    assert plausibility.trouble(np.array([1.19, 1.0]), PERIOD) == ""  # the tolerance and ten steps
    trouble = plausibility.trouble(np.array([1.19, 2.19]), PERIOD + PERIOD // 2)
    assert "'b' is measured at 2.1900, 0.000 s after 1.0000" in trouble


def test_the_time_between_two_measurements_counts(plausibility: Plausibility) -> None:
    plausibility.trouble(np.array([-1.0, 1.0]), 0)
    assert plausibility.trouble(np.array([1.0, 1.0]), 3 * PERIOD) == ""


def test_the_same_measurement_is_looked_at_once(plausibility: Plausibility) -> None:
    plausibility.trouble(np.array([0.0, 1.0]), PERIOD)
    assert plausibility.trouble(np.array([1.0, 1.0]), PERIOD) == ""
    assert "'a'" in plausibility.trouble(np.array([1.0, 1.0]), PERIOD + 1)


def test_a_new_beginning_and_a_time_that_went_back_are_compared_with_nothing(plausibility: Plausibility) -> None:
    plausibility.trouble(np.array([0.0, 1.0]), 10 * PERIOD)
    assert plausibility.trouble(np.array([1.0, 1.0]), PERIOD) == ""
    plausibility.begin(np.array([-1.0, 1.0]), 2 * PERIOD)
    assert plausibility.trouble(np.array([-1.0, 1.0]), 3 * PERIOD) == ""
    assert "'a'" in plausibility.trouble(np.array([1.0, 1.0]), 4 * PERIOD)
