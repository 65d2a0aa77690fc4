# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rcl_interfaces.msg import ParameterValue
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter

from flashrt_ros.runtime.errors import ErrorCode

HELD = 0

LOADS_FOR_EVER = """
import time
from flashrt_ros.node import mind_setup, policy_node
def load_policy(path, device, threads, progress, contract, precision, capsule_bytes, views, weights):
    while True:
        progress("still reading")
        time.sleep(0.05)
mind_setup.load_policy = load_policy
raise SystemExit(policy_node.main())
"""
COMPUTES_FOR_EVER = """
import time
from flashrt_ros.node import policy_node
from flashrt_ros.policy.session import Session
Session.act = lambda *_: time.sleep(1e6)
raise SystemExit(policy_node.main())
"""
WITHOUT_CUDA = """
import sys
from flashrt_ros.node import policy_node
sys.modules["cuda"] = None
raise SystemExit(policy_node.main())
"""
IS_FULL_AT_FIRST = """
from flashrt_ros.node import mind_setup, policy_node
from flashrt_ros.runtime.errors import DeviceRefusalError
load_policy = mind_setup.load_policy
def refuse(*_, **__):
    mind_setup.load_policy = load_policy
    raise DeviceRefusalError("out of memory: allocating 9 bytes")
mind_setup.load_policy = refuse
raise SystemExit(policy_node.main())
"""
BREAKS = COMPUTES_FOR_EVER.replace("time.sleep(1e6)", "1 / 0")


def test_unconfigured_answers_inactive_and_a_failed_configure_can_be_tried_again(
    arm: Any, client: Any, spun: Any, start_policy: Callable[..., Any], checkpoint: Path, tmp_path: Path
) -> None:
    process = start_policy(checkpoint=tmp_path)
    process.says("", 40.0)
    assert client.state() == "unconfigured"
    services = ("snapshot", "restore", "rollback", "reset", "fork", "list_capsules", "drop_capsule", "save_capsule")
    for service in (*services, "load_capsule", "save_incident", "sample_actions", "start_policy", "stop_policy"):
        assert client.call(service).error_code == ErrorCode.INACTIVE
    assert client.run(instruction="lift the cup").result().error_code == ErrorCode.INACTIVE
    assert not client.transition("configure")
    process.says(f"BAD_CHECKPOINT: {tmp_path}")
    assert client.state() == "unconfigured"
    parameter = Parameter("checkpoint", value=str(checkpoint)).to_parameter_msg()
    assert isinstance(parameter.value, ParameterValue)
    setter = spun.create_client(SetParameters, "policy/set_parameters")
    assert setter.wait_for_service(20.0)
    assert client.answer(setter.call_async(SetParameters.Request(parameters=[parameter]))).results[0].successful
    assert client.transition("configure")
    assert client.state() == "inactive"
    assert client.call("list_capsules").error_code == ErrorCode.INACTIVE
    assert client.transition("activate")
    assert client.run(step_limit=1).result().error_code == ErrorCode.NOT_BEGUN
    assert client.call("snapshot", name="early").error_code == ErrorCode.NOT_BEGUN
    assert client.call("rollback", steps=1).error_code == ErrorCode.NOT_BEGUN
    assert client.call("reset").error_code == ErrorCode.NOT_BEGUN


def test_a_device_without_room_fails_the_configure_which_can_be_tried_again(
    client: Any, start_policy: Callable[..., Any]
) -> None:
    process = start_policy(code=IS_FULL_AT_FIRST, device="cpu")
    assert not client.transition("configure", 60.0)
    process.says("cannot configure: BAD_REQUEST: device 'cpu': out of memory: allocating 9 bytes")
    assert client.state() == "unconfigured"
    assert client.transition("configure")


def test_exact_is_refused_in_a_real_world_unless_nothing_moves(
    arm: Any, client: Any, start_policy: Callable[..., Any], wait_for: Callable[..., Any]
) -> None:
    start_policy(autostart=True)
    wait_for(lambda: client.state() == "active", 40.0)
    client.run(instruction="lift the cup", step_limit=20).result()
    client.call("snapshot", name="here")
    digest, epoch = client.live_digest(), arm.states[-1].epoch
    for answer in (client.call("restore", name="here", mode=1), client.call("rollback", steps=1, mode=1)):
        assert answer.error_code == ErrorCode.EXACT_REFUSED
    assert (client.live_digest(), arm.states[-1].epoch) == (digest, epoch)
    arm.dry_run = True
    arm.say("held")
    wait_for(lambda: client.call("restore", name="here", mode=1).error_code == ErrorCode.NONE)


def test_deactivate_closes_the_gate_and_the_state_survives_until_cleanup(
    arm: Any, client: Any, start_policy: Callable[..., Any], wait_for: Callable[..., Any]
) -> None:
    start_policy(autostart=True)
    wait_for(lambda: client.state() == "active", 40.0)
    run = client.run(instruction="lift the cup")
    wait_for(lambda: arm.open)
    epoch = arm.epoch
    assert client.transition("deactivate")
    assert run.result().reason == "deactivated"
    assert not arm.open
    assert (arm.states[-1].state, arm.states[-1].reason, arm.epoch) == (HELD, "deactivated", epoch + 1)
    assert client.call("restore", name="episode_start").error_code == ErrorCode.INACTIVE
    assert client.transition("activate")
    assert client.call("reset").error_code == ErrorCode.NONE
    assert client.transition("deactivate")
    assert client.transition("cleanup")
    assert client.state() == "unconfigured"
    assert client.transition("configure")
    assert client.transition("activate")
    assert arm.states[-1].epoch > epoch + 2
    assert not client.transition("configure"), "it is configured already"


def test_calls_that_come_too_often_are_busy_and_told(
    arm: Any, client: Any, start_policy: Callable[..., Any], wait_for: Callable[..., Any]
) -> None:
    start_policy(autostart=True, rate_limit=0.1)
    wait_for(lambda: client.state() == "active", 40.0)
    client.run(instruction="lift the cup", step_limit=5).result()
    client.diagnostics.clear()
    codes = [client.call("save_capsule", name="unknown").error_code for _ in range(2)]
    assert codes == [ErrorCode.UNKNOWN_CAPSULE, ErrorCode.BUSY]

    def counted() -> bool:
        status = client.diagnostics.get("state")
        return status is not None and {pair.key: pair.value for pair in status.values}["refused calls"] == "1"

    wait_for(counted, what="the count")
    assert client.call("snapshot", name="not.limited").error_code == ErrorCode.NONE


def test_a_device_that_is_not_there_fails_configure_and_can_be_asked_for_again(
    client: Any, start_policy: Callable[..., Any]
) -> None:
    process = start_policy(code=WITHOUT_CUDA, device="cuda")
    for _ in range(2):
        assert not client.transition("configure", 40.0)
        assert client.state() == "unconfigured"
    assert process.process.poll() is None
    assert process.output.count("device 'cuda': the cuda backend needs the package cuda") == 2


def test_weights_that_the_policy_does_not_have_fail_configure(client: Any, start_policy: Callable[..., Any]) -> None:
    process = start_policy(weights="fp8")
    assert not client.transition("configure", 40.0)
    process.says("NOT_SUPPORTED: weights 'fp8'")
    assert client.state() == "unconfigured"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("state", ["unconfigured", "configuring", "inactive", "active", "running"])
def test_a_signal_ends_it_well(
    arm: Any, client: Any, start_policy: Callable[..., Any], wait_for: Callable[..., Any], state: str, number: int
) -> None:
    process = start_policy(
        code=LOADS_FOR_EVER if state == "configuring" else "", autostart=state in ("configuring", "active", "running")
    )
    if state == "configuring":
        process.says("still reading")
    if state == "inactive":
        assert client.transition("configure", 40.0)
    expected = "active" if state == "running" else state
    wait_for(lambda: client.state() == expected, 40.0, lambda: process.output)
    if state == "running":
        client.run(instruction="lift the cup")
        wait_for(lambda: arm.open)
    process.process.send_signal(number)
    assert process.process.wait(10.0) == 0, process.output
    assert "Traceback" not in process.output
    if state == "running":
        wait_for(lambda: not arm.open, 2.0, "the gate to close")
        assert arm.states[-1].reason == "policy_node ends"


@pytest.mark.parametrize(
    ("code", "deadline", "said"),
    [(COMPUTES_FOR_EVER, 0.5, "0.5 s are allowed"), (BREAKS, 10.0, "ZeroDivisionError")],
    ids=["hung", "broken"],
)
def test_a_device_that_cannot_be_mended_ends_the_process(
    arm: Any,
    client: Any,
    start_policy: Callable[..., Any],
    wait_for: Callable[..., Any],
    code: str,
    deadline: float,
    said: str,
) -> None:
    process = start_policy(code=code, autostart=True, stage_deadline=deadline)
    wait_for(lambda: client.state() == "active", 40.0, lambda: process.output)
    client.run(instruction="lift the cup")
    assert process.process.wait(10.0) == 70, process.output
    assert said in process.output
    wait_for(lambda: arm.states[-1].reason.startswith("broken"))
    assert not arm.open
