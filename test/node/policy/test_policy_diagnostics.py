# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What policy_node says of itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pages import first_column
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image

from flashrt_ros.runtime.errors import ErrorCode

OK, WARN, ERROR, STALE = b"\x00", b"\x01", b"\x02", b"\x03"
pytestmark = pytest.mark.usefixtures("policy")


def values(client: Any, status: str) -> dict[str, str]:
    found = client.diagnostics.get(status)
    return {pair.key: pair.value for pair in found.values} if found else {}


@pytest.fixture
def reported(arm: Any, client: Any, wait_for: Callable[..., Any]) -> Callable[..., Any]:
    """`reported(status, condition)` waits for a report in which it holds; one behind `cause`, which is called first."""

    def wait(
        name: str, condition: Callable[[Any, dict[str, str]], Any], cause: Callable[[], object] = lambda: None
    ) -> Any:
        client.diagnostics.clear()
        cause()

        def found() -> Any:
            status = client.diagnostics.get(name)
            return status if status is not None and condition(status, values_of(status)) else None

        return wait_for(found, what=lambda: f"{name}: {client.diagnostics.get(name)}")

    return wait


def test_there_is_one_status_for_each_part_and_each_input(client: Any, reported: Callable[..., Any]) -> None:
    assert client.run(instruction="lift the cup", step_limit=40).result().error_code == ErrorCode.NONE
    reported("inference", lambda status, found: int(found["count"]) > 1)
    reported("input state", lambda status, found: True)
    inputs = {"input front", "input wrist", "input state"}
    parts = {"state", "command_node", "topics", "inference", "queue", "capsules", "device", "process"}
    assert set(client.diagnostics) == parts | inputs
    assert first_column("services.md", "status of policy_node") == parts | {"input KEY"}
    inference, device = values(client, "inference"), values(client, "device")
    assert 0 < float(inference["p50, ms"]) <= float(inference["p99, ms"])
    assert float(inference["last, ms"]) > 0
    assert int(device["captures"]) > 0
    assert float(device["memory, MiB"]) > float(device["memory, weight, MiB"]) > 0
    assert float(device["process memory, MiB"]) > 10
    process = values(client, "process")
    assert 0 < float(process["cpu of inference, s"]) < float(process["cpu, s"])
    assert int(values(client, "capsules")["bytes"]) > 0
    assert int(values(client, "queue")["steps"]) == 40
    for key in inputs:
        found = values(client, key)
        assert int(found["delivered"]) > 0
        assert (found["publishers"], found["refused"]) == ("1", "0")
        assert found["topic"].startswith("/")
    assert client.diagnostics["state"].level == OK
    assert client.diagnostics["command_node"].level == OK, client.diagnostics["command_node"]


def test_lost_messages_and_rates_are_counted_by_input(
    arm: Any, client: Any, reported: Callable[..., Any], wait_for: Callable[..., Any]
) -> None:
    client.run(instruction="lift the cup", step_limit=5).result()
    still = reported("input wrist", lambda status, found: found["rate, Hz"] == "0.0")
    before = values_of(still)  # a simulated arm runs faster than its images are taken
    for _ in range(5):
        arm.tick()
    all_came = reported("input wrist", lambda status, found: int(found["delivered"]) == int(before["delivered"]) + 5)
    assert values_of(all_came)["dropped"] == before["dropped"]


def test_a_refused_input_is_named_and_a_run_that_waits_for_it_is_an_error(
    arm: Any, client: Any, reported: Callable[..., Any], wait_for: Callable[..., Any]
) -> None:
    client.run(instruction="lift the cup", step_limit=5).result()
    arm.encoding = "16UC1"
    run = client.run()
    reported("input wrist", lambda status, found: status.level == ERROR and "encoding '16UC1'" in status.message)
    run.result()
    reported("input wrist", lambda status, found: status.level == STALE)


def test_a_publisher_that_does_not_fit_is_named_with_its_topic(
    spun: Any, reported: Callable[..., Any], policy: Any
) -> None:
    profile = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
    publishers = []
    said = "quality of service of /peer does not fit"
    try:
        event = reported(
            "topics",
            lambda status, found: "/camera/front/image_raw: incompatible QoS" in status.message,
            cause=lambda: publishers.append(spun.create_publisher(Image, "camera/front/image_raw", profile)),
        )
        assert event.level == WARN
        status = reported("input front", lambda status, found: said in status.message)
    finally:
        spun.destroy_publisher(publishers[0])
    assert values_of(status)["topic"] == "/camera/front/image_raw"
    assert values_of(status)["publishers"] == "2"
    policy.says("topic /camera/front/image_raw: ")


def values_of(status: Any) -> dict[str, str]:
    return {pair.key: pair.value for pair in status.values}


def test_a_publisher_that_goes_away_is_named_and_counted(
    arm: Any, spun: Any, client: Any, reported: Callable[..., Any], wait_for: Callable[..., Any]
) -> None:
    before = int(values_of(reported("input wrist", lambda status, found: True))["publishers lost"])
    spun.destroy_publisher(arm._views.pop("wrist"))
    try:
        status = reported("input wrist", lambda status, found: "no publisher any more" in status.message)
        assert "/peer was one" in status.message
        assert int(values_of(status)["publishers lost"]) == before + 1
    finally:
        arm._views["wrist"] = spun.create_publisher(Image, "camera/wrist/image_raw", 10)
    reported("input wrist", lambda status, found: "no publisher" not in status.message)


def test_a_missed_deadline_is_told_by_topic(arm: Any, reported: Callable[..., Any]) -> None:
    arm.heartbeat.cancel()
    try:
        status = reported("topics", lambda status, found: "/command/heartbeat: deadline missed" in status.message)
        assert status.level == WARN
        status = reported("command_node", lambda status, found: status.level == STALE)
        assert "silent for" in status.message
    finally:
        arm.heartbeat.reset()
    reported("command_node", lambda status, found: status.level == OK)
    missed = "/command/heartbeat, deadline missed"
    reported("topics", lambda status, found: status.level == OK and int(found[missed]) > 0)
