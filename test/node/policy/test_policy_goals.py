# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from action_msgs.msg import GoalStatus
from builtin_interfaces.msg import Duration

from flashrt_ros.node.stamps import to_nanoseconds
from flashrt_ros.runtime.errors import ErrorCode

pytestmark = pytest.mark.usefixtures("policy")

HELD, RUNNING = 0, 1
EXACT = 1


def chunks_of(arm: Any, client: Any, **goal: Any) -> list[bytes]:
    """What the policy plans in a goal, from the same world each time."""
    arm.stamp = 5_000 * 100_000_000
    arm.chunks.clear()
    result = client.run(step_limit=20, **goal).result()
    assert result.error_code == ErrorCode.NONE, result
    return [chunk.data.tobytes() for chunk in arm.chunks]


def test_an_instruction_begins_and_a_goal_without_one_goes_on(arm: Any, client: Any) -> None:
    first = client.run(instruction="lift the cup", step_limit=20)
    answer = first.answer()
    assert (answer.status, answer.result.reason) == (GoalStatus.STATUS_SUCCEEDED, "step_limit")
    assert answer.result.prefilled_tokens > 0
    assert first.feedback[-1].queue_depth <= 16
    assert first.feedback[-1].boundary
    assert arm.states[-1].boundary == answer.result.final_boundary
    assert (arm.states[-1].state, arm.states[-1].reason) == (HELD, "step_limit")
    before = client.call("list_capsules")
    position = arm.states[-1].position
    again = client.run(step_limit=20).result()
    assert (again.error_code, again.prefilled_tokens) == (ErrorCode.NONE, 0)
    assert arm.states[-1].position > position
    assert len(client.call("list_capsules").capsules) == len(before.capsules)


def test_a_kept_instruction_and_a_seed_decide_what_is_planned(arm: Any, client: Any) -> None:
    planned = {seed: chunks_of(arm, client, instruction="lift the cup", seed=seed) for seed in (5, 6)}
    assert planned[5] != planned[6]
    assert chunks_of(arm, client, instruction="lift the cup", seed=5) == planned[5]
    assert client.run(instruction="lift the cup", step_limit=1).result().prefilled_tokens == 0
    retried = [chunks_of(arm, client, instruction="lift the cup", seed=5, retry=retry) for retry in (1, 2, 1)]
    assert retried[0] == retried[2] != planned[5]
    assert retried[1] != retried[0]


def test_start_from_restores_and_a_new_instruction_is_appended(arm: Any, client: Any) -> None:
    client.run(instruction="lift the cup", step_limit=20).result()
    client.call("snapshot", name="goal.from")
    same = [chunks_of(arm, client, start_from="goal.from") for _ in range(2)]
    assert same[0] == same[1]
    arm.stamp = 5_000 * 100_000_000
    replanned = client.run(start_from="goal.from", instruction="drop the cup", step_limit=20).result()
    assert replanned.prefilled_tokens > 0
    assert [chunk.data.tobytes() for chunk in arm.chunks[-len(same[0]) :]] != same[0]
    assert arm.states[-1].instruction == "drop the cup"
    assert {chunk.instruction for chunk in arm.chunks[-len(same[0]) :]} == {"drop the cup"}


def test_every_chunk_answers_an_observation_behind_the_closed_gate(arm: Any, client: Any) -> None:
    arm.chunks.clear()
    for _ in range(2):
        client.run(instruction="lift the cup", step_limit=20).result()
    assert len({chunk.chunk_id for chunk in arm.chunks}) == len(arm.chunks) >= 4
    first = {
        epoch: next(chunk for chunk in arm.chunks if chunk.epoch == epoch) for epoch in {c.epoch for c in arm.chunks}
    }
    assert len(first) == 2
    assert all(to_nanoseconds(chunk.observation_stamp) > arm.closings[epoch] for epoch, chunk in first.items())
    assert all(list(chunk.joint_names) == list(arm.positions) for chunk in arm.chunks)
    assert all((chunk.start, chunk.exact, to_nanoseconds(chunk.dt)) == (0, False, 100_000_000) for chunk in arm.chunks)


def test_cancel_closes_the_gate(arm: Any, client: Any, wait_for: Callable[..., Any]) -> None:
    run = client.run(instruction="lift the cup")
    wait_for(lambda: arm.open)
    epoch = arm.epoch
    run.cancel()
    answer = run.answer()
    assert (answer.status, answer.result.reason) == (GoalStatus.STATUS_CANCELED, "canceled")
    assert not arm.open
    assert (arm.states[-1].state, arm.epoch) == (HELD, epoch + 1)


def test_a_newer_goal_preempts(arm: Any, client: Any, wait_for: Callable[..., Any]) -> None:
    first = client.run(instruction="lift the cup")
    wait_for(lambda: arm.open)
    epoch = arm.epoch
    second = client.run(instruction="drop the cup", step_limit=5)
    assert (first.result().reason, first.answer().status) == ("preempted", GoalStatus.STATUS_ABORTED)
    assert second.result().error_code == ErrorCode.NONE
    assert arm.epoch == epoch + 1
    assert {chunk.instruction for chunk in arm.chunks if chunk.epoch > epoch} == {"drop the cup"}


def test_a_time_limit_is_a_success(arm: Any, client: Any) -> None:
    answer = client.run(instruction="lift the cup", time_limit=Duration(sec=1)).answer()
    assert (answer.status, answer.result.reason) == (GoalStatus.STATUS_SUCCEEDED, "time_limit")
    assert answer.result.steps > 0
    assert not arm.open


@pytest.mark.parametrize(
    ("goal", "code"),
    [
        ({"start_from": "unknown"}, ErrorCode.UNKNOWN_CAPSULE),
        ({"start_from": "../up"}, ErrorCode.BAD_NAME),
        ({"instruction": "x" * 200}, ErrorCode.BAD_INSTRUCTION),
        ({"instruction": " "}, ErrorCode.BAD_INSTRUCTION),
        ({"start_from": "episode_start", "instruction": "x" * 200}, ErrorCode.BAD_INSTRUCTION),
        ({"seed": 4}, ErrorCode.BAD_REQUEST),
        ({"start_from": "episode_start", "seed": 4}, ErrorCode.BAD_REQUEST),
    ],
)
def test_a_refused_goal_leaves_the_active_one_running(
    arm: Any, client: Any, wait_for: Callable[..., Any], goal: dict[str, Any], code: ErrorCode
) -> None:
    active = client.run(instruction="lift the cup")
    wait_for(lambda: arm.open)
    epoch = arm.epoch
    refused = client.run(**goal).answer()
    assert (refused.status, refused.result.error_code) == (GoalStatus.STATUS_ABORTED, code)
    assert (refused.result.reason, bool(refused.result.error_msg)) == ("refused", True)
    assert not active.done()
    assert (arm.open, arm.epoch) == (True, epoch)
    active.cancel()
    active.result()


def test_a_repeated_goal_runs_once(arm: Any, client: Any) -> None:
    runs = [client.run(request_id="goal.once", instruction="lift the cup", step_limit=20) for _ in range(2)]
    epoch = arm.epoch
    assert runs[0].result() == runs[1].result()
    late = client.run(request_id="goal.once", instruction="lift the cup", step_limit=20)
    assert late.answer() == runs[0].answer()
    assert arm.states[-1].epoch <= epoch + 1


def test_exact_takes_the_planned_chunk_up_again_where_it_was(
    arm: Any, client: Any, wait_for: Callable[..., Any]
) -> None:
    client.run(instruction="lift the cup", step_limit=1).result()
    arm.auto = False
    run = client.run()
    wait_for(lambda: arm.running)
    count = len(arm.chunks)
    arm.tick(infer=True)
    planned = arm.newest_chunk(after=count)
    arm.take(planned)
    client.diagnostics.clear()
    for _ in range(5):
        arm.tick()
    wait_for(lambda: queue_depth(client) == len(planned.data) // 6 - 5, what="the ticks to have arrived")
    client.call("snapshot", name="goal.exact")
    for mode, reinstated in ((EXACT, True), (0, False)):
        client.call("restore", name="goal.exact", mode=mode)
        count = len(arm.chunks)
        again = client.run()
        wait_for(lambda: arm.running)
        arm.tick(infer=True)
        chunk = arm.newest_chunk(after=count)
        assert chunk.exact == reinstated
        assert chunk.start == (5 if reinstated else 0)
        assert (chunk.data.tobytes() == planned.data.tobytes()) == reinstated
        again.cancel()
        again.result()
    assert run.result().reason == "restored"


def test_a_closed_gate_has_nothing_planned_and_nothing_observed(
    arm: Any, client: Any, wait_for: Callable[..., Any]
) -> None:
    client.run(instruction="lift the cup", step_limit=5).result()
    client.call("snapshot", name="goal.closed")
    arm.auto = False
    client.call("restore", name="goal.closed", mode=EXACT)
    client.diagnostics.clear()
    wait_for(lambda: "input front" in client.diagnostics)
    assert client.diagnostics["input front"].message == "nothing has come"
    run = client.run()
    wait_for(lambda: arm.running)
    count = len(arm.chunks)
    arm.tick(infer=True)
    assert not arm.newest_chunk(after=count).exact
    run.cancel()
    run.result()


def queue_depth(client: Any) -> int:
    status = client.diagnostics.get("inference")
    values = {pair.key: pair.value for pair in status.values} if status else {}
    return int(values.get("queue depth", -1))


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("start_tolerance: joint 'elbow' would start at 2.0, it is measured at 0.1", ErrorCode.START_TOLERANCE),
        ("disabled: enable, then run again", ErrorCode.CANCELED),
        ("following: joint 'elbow' is measured at 0.1 and commanded to 0.4", ErrorCode.BAD_OBSERVATION),
        ("bad_chunk: not finite", ErrorCode.BAD_CONTRACT),
        ("heartbeat: none from the policy for 0.5 s", ErrorCode.GATE_TIMEOUT),
    ],
)
def test_a_gate_that_command_node_closes_ends_the_goal(
    arm: Any, client: Any, wait_for: Callable[..., Any], reason: str, code: ErrorCode
) -> None:
    arm.auto = False
    run = client.run(instruction="lift the cup")
    wait_for(lambda: arm.running)
    arm.close(reason)
    result = run.result()
    assert (result.error_code, result.reason) == (code, reason.partition(":")[0])
    assert reason in result.error_msg
    assert arm.states[-1].state == HELD


def test_a_silent_command_node_ends_the_goal(arm: Any, client: Any) -> None:
    arm.heartbeat.cancel()
    try:
        result = client.run(instruction="lift the cup").result()
    finally:
        arm.heartbeat.reset()
    assert (result.error_code, result.reason) == (ErrorCode.GATE_TIMEOUT, "command_node_lost")


def test_a_gate_that_stays_closed_ends_the_goal(arm: Any, client: Any) -> None:
    arm.auto = False
    result = client.run(instruction="lift the cup").result()
    assert (result.error_code, result.reason) == (ErrorCode.GATE_TIMEOUT, "gate_not_opened")


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (lambda arm: arm.absent.add("wrist"), "wrist (camera/wrist/image_raw)"),
        (lambda arm: setattr(arm, "encoding", "16UC1"), "encoding '16UC1'"),
        (lambda arm: arm.positions.pop("elbow"), "joint 'elbow' is missing"),
        (lambda arm: arm.positions.update(elbow=float("nan")), "joint 'elbow' is nan"),
    ],
    ids=["no camera", "encoding", "no joint", "NaN"],
)
def test_a_bad_input_makes_no_chunk_ends_the_goal_and_is_named(
    arm: Any, client: Any, wait_for: Callable[..., Any], fault: Callable[[Any], object], named: str
) -> None:
    client.run(instruction="lift the cup", step_limit=1).result()
    digest = client.live_digest()
    fault(arm)
    count = len(arm.chunks)
    run = client.run()

    def told() -> Any:
        status = client.diagnostics.get("inference")
        return status if status is not None and named in status.message else None

    assert wait_for(told, what=named).level == b"\x02"
    result = run.result()
    assert (result.error_code, result.reason) == (ErrorCode.BAD_OBSERVATION, "no_observation")
    assert named in result.error_msg
    assert len(arm.chunks) == count
    assert client.live_digest() == digest
