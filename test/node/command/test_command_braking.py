# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Holds that come to rest over several ticks, over real topics: whatever ends the motion, and if the node ends too."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lifecycle_msgs.msg import Transition
from sensor_msgs.msg import JointState

from flashrt_ros.node import qos

STEP = 0.001  # of joint a in a tick
CHANGE = 0.00025  # a tick, each tick: 0.1 rad/s2


@pytest.mark.parametrize(
    "end",
    [
        lambda world, process, change: world.enable(False),
        lambda world, process, change: change(Transition.TRANSITION_DEACTIVATE) and process.signal(signal.SIGINT),
        lambda world, process, change: process.signal(signal.SIGINT),
    ],
    ids=["e-stop", "deactivate", "SIGINT"],
)
def test_the_arm_slows_down_within_its_acceleration_and_then_nothing_is_sent(
    start: Any, world: Any, contract: Path, change: Any, wait_until: Any, end: Callable[..., Any]
) -> None:
    contract.write_text(contract.read_text().replace("b: 0.1}}", "b: 0.1}, acceleration: {a: 0.1, b: 0.1}}"))
    world.first = lambda: STEP * max(0, world.ticks[-1].steps - 1)  # goes on at the same speed
    process = start()
    world.run(1)
    wait_until(lambda: len(world.commands) > 5)
    end(world, process, change)

    def steps() -> list[float]:
        places = [positions[0] for _, positions in world.commands]
        return [after - before for before, after in itertools.pairwise(places)]

    wait_until(lambda: not world.gate.open and steps()[-1] == 0.0, what="rest")
    assert steps()[-5:] == pytest.approx([STEP - n * CHANGE for n in range(5)], abs=1e-9)
    stamps = [stamp for stamp, _ in world.commands[-5:]]
    assert stamps[-1] - stamps[0] > 4 * 20_000_000  # no burst; one tick may be late, and the next in time
    count, ticks = len(world.commands), len(world.ticks)
    if world.reason() == "disabled":
        wait_until(lambda: len(world.ticks) > ticks + 3)
    else:
        assert process.wait() == 0
    assert len(world.commands) == count


def test_a_node_that_ends_and_stood_still_meanwhile_goes_on_at_the_pace_of_its_ticks(
    start: Any, world: Any, contract: Path, wait_until: Any
) -> None:
    text = contract.read_text().replace("b: 0.1}}", "b: 0.1}, acceleration: {a: 0.1, b: 0.1}}")
    contract.write_text(text.replace("max_age: 0.5", "max_age: 5.0"))  # it stands still for less
    world.first = lambda: STEP * max(0, world.ticks[-1].steps - 1)
    process = start()
    world.run(1)
    wait_until(lambda: len(world.commands) > 5)
    process.signal(signal.SIGINT)
    wait_until(lambda: not world.gate.open)
    process.signal(signal.SIGSTOP)
    time.sleep(0.3)  # the length of the stop is the input
    process.signal(signal.SIGCONT)
    assert process.wait() == 0
    wait_until(lambda: world.commands[-1][1] == world.commands[-2][1], what="rest")
    stamps = [stamp for stamp, _ in world.commands[-5:]]
    assert min(later - stamp for stamp, later in itertools.pairwise(stamps)) > 20_000_000


def test_joints_that_are_commanded_by_velocity_get_zeros_when_the_gate_closes(
    start: Any, world: Any, contract: Path, wait_until: Any
) -> None:
    text = contract.read_text().replace("step: {a: 0.1", "velocity: {a: 0.1").replace("safety: hold", "safety: zero")
    command = "{topic: joint_command, type: sensor_msgs/msg/JointState}"
    assert command in text
    by_velocity = "{topic: joint_speeds, type: sensor_msgs/msg/JointState, interface: velocity}"
    contract.write_text(text.replace(command, by_velocity))
    sent: list[JointState] = []
    world.node.create_subscription(JointState, "joint_speeds", sent.append, qos.COMMAND)
    world.first = lambda: 0.01
    start()
    world.run(1)
    wait_until(lambda: len(sent) > 5)
    world.enable(False)
    wait_until(lambda: not world.gate.open)
    ticks = len(world.ticks)
    wait_until(lambda: len(world.ticks) > ticks + 3)
    assert [list(each.position) for each in sent] == [[]] * len(sent)
    assert all(0.01 <= each.velocity[0] < 0.02 for each in sent[:-1])
    assert list(sent[-1].velocity) == [0.0, 0.0]
