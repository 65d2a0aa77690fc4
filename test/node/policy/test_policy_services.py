# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Sampling, and running the policy by services alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from builtin_interfaces.msg import Duration

from flashrt_ros.runtime.errors import ErrorCode

pytestmark = pytest.mark.usefixtures("policy")

HELD, RUNNING = 0, 1


def rows(chunk: Any) -> np.ndarray:
    return np.array(chunk.data).reshape(chunk.horizon, len(chunk.joint_names))


def test_samples_are_chunks_of_one_boundary_and_leave_the_state(
    arm: Any, client: Any, wait_for: Callable[..., Any]
) -> None:
    client.run(instruction="lift the cup", step_limit=20).result()
    wait_for(lambda: arm.states[-1].durable_boundary == arm.states[-1].boundary, what="the last that it has to say")
    digest, state = client.live_digest(), arm.states[-1]
    response = client.call("sample_actions", seeds=[1, 2, 1])
    assert response.error_code == ErrorCode.NONE, response
    first, second, again = response.chunks
    assert first.data == again.data != second.data
    assert rows(first).shape == (16, 6)
    assert np.isfinite(rows(first)).all()
    assert list(first.joint_names) == list(arm.positions)
    assert {(chunk.epoch, chunk.chunk_id, chunk.exact, chunk.start) for chunk in response.chunks} == {(0, 0, False, 0)}
    assert {(chunk.instruction, chunk.position) for chunk in response.chunks} == {("lift the cup", state.position)}
    assert client.live_digest() == digest
    assert arm.states[-1] == state


def test_the_seed_of_the_episode_samples_what_the_next_goal_plans(arm: Any, client: Any) -> None:
    """From the same boundary: the observation that a chunk answers is behind it."""
    client.run(instruction="lift the cup", seed=5, step_limit=1).result()
    assert client.call("rollback", steps=1).error_code == ErrorCode.NONE
    planned = arm.chunks[-1]
    (sample,) = client.call("sample_actions", seeds=[5]).chunks
    assert sample.data == planned.data
    assert sample.observation_stamp == planned.observation_stamp


def test_sampling_does_not_disturb_a_goal(arm: Any, client: Any, wait_for: Callable[..., Any]) -> None:
    def chunks(sampling: bool) -> list[bytes]:
        arm.stamp = 5_000 * 100_000_000
        arm.chunks.clear()
        run = client.run(instruction="lift the cup", seed=9, step_limit=60)
        answers = []
        while sampling and not run.done():
            answers.append(client.call("sample_actions", seeds=[1, 2, 3, 4]))
        assert run.result().error_code == ErrorCode.NONE
        assert all(answer.error_code in (ErrorCode.NONE, ErrorCode.NOT_BEGUN, ErrorCode.BUSY) for answer in answers)
        assert not sampling or any(answer.error_code == ErrorCode.NONE for answer in answers)
        return [chunk.data.tobytes() for chunk in arm.chunks]

    pairs = list(zip(chunks(sampling=True), chunks(sampling=False), strict=False))  # one may be left over at the limit
    assert len(pairs) >= 4
    assert all(one == other for one, other in pairs)


@pytest.mark.parametrize("seeds", [[], list(range(17)), list(range(300))], ids=len)
def test_the_number_of_samples_is_bounded(client: Any, seeds: list[int]) -> None:
    response = client.call("sample_actions", seeds=seeds)
    assert response.error_code == ErrorCode.BAD_REQUEST
    assert str(len(seeds)) in response.error_msg


def test_a_request_id_that_is_too_long_is_refused(arm: Any, client: Any) -> None:
    for service, fields in (("snapshot", {"name": "long"}), ("start_policy", {}), ("stop_policy", {})):
        refused = client.call(service, request_id="x" * 129, **fields)
        assert (refused.error_code, "129 characters" in refused.error_msg) == (ErrorCode.BAD_REQUEST, True)
    assert client.run(request_id="x" * 129).result().error_code == ErrorCode.BAD_REQUEST


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "a/b", "..", ".hidden", "a" * 129, "ä"])
@pytest.mark.parametrize("service", ["snapshot", "save_capsule", "load_capsule", "restore", "drop_capsule"])
def test_no_name_reaches_outside_the_capsule_folder(client: Any, service: str, name: str) -> None:
    response = client.call(service, name=name)
    assert response.error_code in (ErrorCode.BAD_NAME, ErrorCode.UNKNOWN_CAPSULE), response
    if service == "snapshot":
        assert response.error_code == ErrorCode.BAD_NAME


def test_a_started_run_goes_on_and_the_state_says_how_it_ended(
    arm: Any, client: Any, wait_for: Callable[..., Any]
) -> None:
    started = client.call("start_policy", instruction="lift the cup", seed=5, step_limit=20)
    assert started.error_code == ErrorCode.NONE, started
    wait_for(lambda: arm.states[-1].epoch == started.epoch and arm.states[-1].state == HELD, what="the end")
    assert arm.states[-1].reason == "step_limit"
    planned = [chunk.data.tobytes() for chunk in arm.chunks]
    assert {chunk.epoch for chunk in arm.chunks} == {started.epoch}
    again = client.call("start_policy", time_limit=Duration(nanosec=200_000_000))
    assert (again.error_code, again.prefilled_tokens) == (ErrorCode.NONE, 0)
    wait_for(lambda: arm.states[-1].reason == "time_limit")
    assert planned


def test_a_service_client_that_is_answered_twice_has_started_once(arm: Any, client: Any) -> None:
    fields = {"request_id": "start.once", "instruction": "lift the cup", "step_limit": 5}
    first = client.call("start_policy", **fields)
    assert client.call("start_policy", **fields) == first
    assert arm.states[-1].epoch == first.epoch


def test_stop_closes_the_gate_behind_whoever_started(arm: Any, client: Any, wait_for: Callable[..., Any]) -> None:
    client.call("start_policy", instruction="lift the cup")
    wait_for(lambda: arm.open)
    stopped = client.call("stop_policy")
    assert (stopped.error_code, stopped.reason) == (ErrorCode.NONE, "stopped")
    assert not arm.open
    assert (arm.states[-1].state, arm.states[-1].reason) == (HELD, "stopped")
    assert stopped.final_boundary == arm.states[-1].boundary
    run = client.run()
    wait_for(lambda: arm.open)
    assert client.call("stop_policy").error_code == ErrorCode.NONE
    result = run.result()
    assert (result.error_code, result.reason) == (ErrorCode.CANCELED, "stopped")
    epoch = arm.states[-1].epoch
    nothing = client.call("stop_policy")
    assert (nothing.error_code, nothing.reason) == (ErrorCode.NONE, "")
    assert arm.states[-1].epoch == epoch


def test_starts_and_goals_preempt_each_other(arm: Any, client: Any, wait_for: Callable[..., Any]) -> None:
    run = client.run(instruction="lift the cup")
    wait_for(lambda: arm.open)
    assert client.call("start_policy", instruction="drop the cup").error_code == ErrorCode.NONE
    assert run.result().reason == "preempted"
    wait_for(lambda: arm.open)
    assert client.run(step_limit=5).result().reason == "step_limit"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"start_from": "unknown"}, ErrorCode.UNKNOWN_CAPSULE),
        ({"instruction": " "}, ErrorCode.BAD_INSTRUCTION),
        ({"instruction": "x" * 9000}, ErrorCode.BAD_INSTRUCTION),
        ({"seed": 4}, ErrorCode.BAD_REQUEST),
    ],
)
def test_a_refused_start_disturbs_nothing(
    arm: Any, client: Any, wait_for: Callable[..., Any], fields: dict[str, Any], code: ErrorCode
) -> None:
    run = client.run(instruction="lift the cup")
    wait_for(lambda: arm.open)
    epoch = arm.epoch
    refused = client.call("start_policy", **fields)
    assert (refused.error_code, bool(refused.error_msg)) == (code, True)
    assert not run.done()
    assert (arm.open, arm.epoch) == (True, epoch)
    run.cancel()
    run.result()


def test_a_failed_run_is_told_by_the_state_and_by_diagnostics(
    arm: Any, client: Any, wait_for: Callable[..., Any]
) -> None:
    arm.auto = False
    client.call("start_policy", instruction="lift the cup")
    wait_for(lambda: arm.running)
    arm.close("start_tolerance: joint 'elbow' would start at 2.0")
    wait_for(lambda: arm.states[-1].state == HELD)
    assert arm.states[-1].reason == "start_tolerance: joint 'elbow' would start at 2.0"

    def failed() -> Any:
        status = client.diagnostics.get("state")
        return status if status is not None and status.level == b"\x02" else None

    assert "joint 'elbow'" in wait_for(failed, what=lambda: client.diagnostics.get("state")).message


def test_a_goal_whose_chunks_are_never_run_ends(arm: Any, client: Any, wait_for: Callable[..., Any]) -> None:
    """As behind a forged chunk with the largest id there is, after which all others are repetitions."""
    arm.auto = False
    run = client.run(instruction="lift the cup")
    wait_for(lambda: arm.running)
    arm.open = True
    arm.say("")
    count = len(arm.chunks)
    while not run.done():
        if len(arm.chunks) >= count:
            arm.tick(infer=True)
            count += 1
        time.sleep(0.001)
    result = run.result()
    assert (result.error_code, result.reason) == (ErrorCode.GATE_TIMEOUT, "chunks_not_run")
    assert (arm.states[-1].state, arm.open) == (HELD, False)


@pytest.mark.parametrize("opened", [True, False])
def test_a_gate_that_was_disarmed_in_the_same_epoch_ends_the_goal(
    arm: Any, client: Any, wait_for: Callable[..., Any], opened: bool
) -> None:
    """As behind a forged HELD: nobody but this policy_node may ask for it, and it did not."""
    arm.auto = False
    run = client.run(instruction="lift the cup")
    wait_for(lambda: arm.running)
    if opened:
        arm.tick(infer=True)
        arm.take(arm.newest_chunk())
    arm.tick()
    arm.close("held: somebody else's")
    result = run.result()
    assert (result.error_code, result.reason) == (ErrorCode.CANCELED, "held")
    assert arm.states[-1].state == HELD
    arm.auto = True
    assert client.run(step_limit=1).result().error_code == ErrorCode.NONE
