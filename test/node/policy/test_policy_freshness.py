# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""On a wall clock: only what is whole, fresh and newer than the closed gate is acted on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from diagnostic_msgs.msg import DiagnosticArray
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image, JointState

from flashrt_ros.node import qos
from flashrt_ros.node.stamps import from_nanoseconds, to_nanoseconds
from flashrt_ros.runtime.errors import ErrorCode

PERIOD = 100_000_000


@pytest.fixture
def start_running(
    arm: Any, client: Any, start_policy: Callable[..., Any], wait_for: Callable[..., Any], timed_contract: Path
) -> Callable[[float], Any]:
    """`start_running(patience)`: a goal that waits for its first observation, so many seconds."""

    def start(patience: float) -> Any:
        start_policy(autostart=True, contract=timed_contract, observation_timeout=patience)
        wait_for(lambda: client.state() == "active", 40.0)
        arm.auto, arm.stamp = False, time.time_ns()
        run = client.run(instruction="lift the cup")
        wait_for(lambda: arm.running)
        return run

    return start


@pytest.fixture
def running(start_running: Callable[[float], Any]) -> Any:
    return start_running(2.0)


def test_a_fresh_observation_is_acted_on(
    arm: Any, start_running: Callable[[float], Any], wait_for: Callable[..., Any]
) -> None:
    start_running(10.0)

    def show_now() -> bool:
        arm.stamp = time.time_ns()
        arm.tick(infer=True)
        time.sleep(0.05)
        return bool(arm.chunks)

    wait_for(show_now, what="a chunk")
    assert to_nanoseconds(arm.chunks[0].observation_stamp) > arm.closed_at


def test_a_camera_whose_stamp_is_frozen_stops_the_inference_and_is_named(
    arm: Any, client: Any, start_running: Callable[[float], Any], wait_for: Callable[..., Any]
) -> None:
    start_running(10.0)

    def show_now() -> int:
        arm.stamp = time.time_ns()
        arm.tick(infer=True)
        time.sleep(0.03)
        return len(arm.chunks)

    wait_for(show_now, what="a chunk")
    arm.frozen["front"] = frozen = arm.stamp
    client.diagnostics.clear()

    def waits_for_it() -> bool:
        """Whether no inference is in progress: one has been asked for and cannot begin."""
        show_now()
        status = client.diagnostics.get("inference")
        return status is not None and "front (camera/front/image_raw): is " in status.message

    wait_for(waits_for_it, what="an inference that lacks an image")
    stopped = len(arm.chunks)
    client.diagnostics.clear()
    assert all(to_nanoseconds(chunk.observation_stamp) <= frozen for chunk in arm.chunks)
    front = wait_for(
        lambda: show_now() and not _named(client, "input wrist") and _named(client, "input front"),
        what="a diagnostic of the frozen camera alone",
    )
    assert "s old, 0.3 are allowed" in front.message
    assert len(arm.chunks) == stopped
    arm.frozen.clear()
    wait_for(lambda: show_now() > stopped, what="a chunk of a camera that works again")


def _named(client: Any, name: str) -> Any:
    """The status of an input, where it is not fresh."""
    status = client.diagnostics.get(name)
    return status if status is not None and "fresh" not in status.message else None


@pytest.mark.parametrize(
    ("age", "absent", "named"),
    [
        (1_000_000_000, set(), "front (camera/front/image_raw): is "),
        (-10_000_000_000, set(), "s in the future"),
        (0, {"state"}, "state (joint_states): nothing"),
    ],
    ids=["frozen", "future", "no joints"],
)
def test_what_is_not_fresh_or_not_whole_is_named_and_never_acted_on(
    arm: Any, running: Any, wait_for: Callable[..., Any], age: int, absent: set[str], named: str
) -> None:
    arm.absent = absent

    def show() -> bool:
        arm.stamp = time.time_ns() - age
        arm.show(arm.stamp)
        arm.report(arm.stamp, active=False, infer=True)
        time.sleep(0.05)
        return running.done()

    arm.closed_at = 0
    arm.say("waiting: for the first chunk")
    wait_for(show, what="the end of the goal")
    assert running.result().error_code == ErrorCode.BAD_OBSERVATION
    assert named in running.result().error_msg
    assert not arm.chunks


def refused(client: Any, key: str) -> str:
    status = client.diagnostics.get(f"input {key}")
    return next((pair.value for pair in status.values if pair.key == "refused"), "") if status else ""


@pytest.mark.parametrize(
    ("kind", "topic", "key"),
    [(JointState, "joint_states", "state"), (Image, "camera/front/image_raw", "front")],
)
def test_bytes_that_are_no_message_are_refused_and_counted_and_end_nothing(
    spun: Any, arm: Any, client: Any, running: Any, wait_for: Callable[..., Any], kind: type, topic: str, key: str
) -> None:
    """As a publisher whose package has another definition of the message sends them."""
    sender = spun.create_publisher(kind, topic, qos.input_qos("reliable"))
    reports = spun.create_publisher(DiagnosticArray, "/diagnostics", qos.DIAGNOSTICS)
    try:
        wait_for(lambda: sender.get_subscription_count() and reports.get_subscription_count())
        for garbage in (b"\0\1\0\0", b"\0\1\0\0" + 8 * b"\0" + b"\xff\xff\xff\x7f" + 20 * b"a"):
            sender.publish(garbage)
            reports.publish(garbage)
        wait_for(lambda: refused(client, key) == "2", what="the count")
    finally:
        spun.destroy_publisher(sender)
        spun.destroy_publisher(reports)
    assert client.state() == "active"


def test_a_clock_that_goes_back_leaves_nothing_of_the_other_time_and_the_node_lives(
    spun: Any,
    arm: Any,
    client: Any,
    start_policy: Callable[..., Any],
    wait_for: Callable[..., Any],
    timed_contract: Path,
) -> None:
    clock = spun.create_publisher(Clock, "/clock", qos.CLOCK)

    def show() -> int:
        clock.publish(Clock(clock=from_nanoseconds(arm.stamp + PERIOD)))
        time.sleep(0.01)  # a topic of its own: let it come first
        arm.tick(infer=True)
        time.sleep(0.02)
        return len(arm.chunks)

    def other_time(chunk: Any) -> bool:
        return to_nanoseconds(chunk.observation_stamp) > before - 5_000_000_000

    process = start_policy(autostart=True, contract=timed_contract, observation_timeout=10.0, use_sim_time=True)
    wait_for(lambda: client.state() == "active", 40.0)
    arm.auto = False
    client.run(instruction="lift the cup")
    wait_for(show, what="a chunk")
    before = arm.stamp
    arm.stamp -= 10_000_000_000
    arm.closed_at = arm.stamp
    arm.say("waiting: for the first chunk")
    arm.absent = {"front"}
    client.diagnostics.clear()
    wait_for(lambda: show() and _named(client, "input front"), what="a diagnostic")
    stopped = len(arm.chunks)
    assert other_time(arm.chunks[-1])
    arm.absent = set()
    wait_for(lambda: show() > stopped and not other_time(arm.chunks[-1]), what="a chunk of this time")
    # The inference that ran meanwhile may be slow; command_node refuses its chunk as one of the future.
    assert sum(map(other_time, arm.chunks[stopped:])) <= 1
    assert process.process.poll() is None
    spun.destroy_publisher(clock)
