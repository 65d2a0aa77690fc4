# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math

import numpy as np

from flashrt_ros.policy.following import Following

FOLLOWING = Following(["a", "b", "c"], [0.3, 0.2, math.inf])


def test_the_joint_that_lags_most_beyond_its_tolerance_is_named_with_what_to_do() -> None:
    trouble = FOLLOWING.trouble(np.array([0.0, 1.0, 0.0]), np.array([-0.31, 1.25, 9.0]))
    assert trouble.startswith("joint 'b' is measured at 1.0000 and commanded to 1.2500, 0.2 is allowed: ")
    assert "controller is active" in trouble


def test_within_the_tolerance_and_without_one_there_is_no_trouble() -> None:
    at, commanded = np.array([0.0, 1.0, 0.0]), np.array([0.29, 0.81, 9.0])
    assert FOLLOWING.trouble(at, commanded) == ""
    assert Following(["a", "b", "c"], None).trouble(at, commanded + 9.0) == ""


def test_an_arm_is_held_where_it_is_and_a_joint_that_may_lag_as_commanded() -> None:
    held = FOLLOWING.held(np.array([0.1, 0.2, 0.3]), np.array([1.0, 2.0, 3.0]))
    assert held.tolist() == [0.1, 0.2, 3.0]
