# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""An arm that does not follow its commands: a controller that is not active, or a robot that was stopped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flashrt_ros.policy.contract_action import Limits

LIMITS = Limits(low=(-1.0, -1.0), high=(1.0, 1.0), step=(0.1, 0.1), following=(0.1, float("inf")))


def run_without_moving(robot: Any) -> None:
    robot.start()
    for _ in range(40):
        robot.rig.plan(robot.record.targets[-1], robot.rig.now)
        robot.tick()
        if not robot.gate.open:
            return


@pytest.mark.parametrize("acceleration", [None, (0.004, 0.004)])
def test_it_is_commanded_no_further_away_than_allowed_and_held_where_it_is(timed: Any, acceleration: Any) -> None:
    robot = timed(limits=replace(LIMITS, acceleration=acceleration))
    run_without_moving(robot)
    robot.tick(3)
    assert (robot.gate.open, robot.token(), robot.gate.fault) == (False, "following", True)
    assert "'a' is measured at 0.0000 and commanded to 0.11" in robot.gate.reason
    assert max(robot.record.targets) < 0.1 + LIMITS.step[0]
    assert robot.record.targets[-1] == 0.0
    assert len(robot.record.safety_stamps) == 1


def test_without_a_limit_it_is_not_looked_at(timed: Any) -> None:
    robot = timed(limits=replace(LIMITS, following=None))
    run_without_moving(robot)
    assert robot.gate.open
    assert robot.record.targets[-1] > 0.2


def test_in_a_dry_run_the_arm_stays_where_it_is(timed: Any) -> None:
    robot = timed(limits=LIMITS, dry_run=True)
    run_without_moving(robot)
    assert robot.gate.open


def test_an_arm_that_follows_moves_on(timed: Any) -> None:
    robot = timed(limits=LIMITS)
    robot.start()
    for _ in range(40):
        robot.rig.plan(robot.record.targets[-1], robot.rig.now)
        robot.tick(a=robot.record.targets[-1])
    assert robot.gate.open
    assert robot.record.targets[-1] > 0.2
