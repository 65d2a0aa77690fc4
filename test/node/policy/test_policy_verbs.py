# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flashrt_ros.runtime.errors import ErrorCode

pytestmark = pytest.mark.usefixtures("policy")

HELD = 0


@pytest.fixture
def name(arm: Any, client: Any, request: pytest.FixtureRequest) -> str:
    """Run a new episode for some steps; returns a capsule name that no other test uses."""
    result = client.run(instruction="press the button", seed=3, step_limit=20).result()
    assert (result.error_code, result.reason, result.steps) == (ErrorCode.NONE, "step_limit", 20), result
    return "".join(letter if letter.isalnum() else "." for letter in request.node.name)


def test_restore_brings_the_same_bytes_back_and_prefills_nothing(arm: Any, client: Any, name: str) -> None:
    saved = client.call("snapshot", name=name)
    assert saved.error_code == ErrorCode.NONE
    assert (saved.capsule.name, len(saved.capsule.joint_positions)) == (name, 6)
    client.run(step_limit=20).result()
    assert client.live_digest() != client.digest(name)
    arm.positions["elbow"] += 0.25
    arm.tick()
    restored = client.call("restore", name=name)
    assert (restored.error_code, restored.prefilled_tokens, restored.rebuilt) == (ErrorCode.NONE, 0, False)
    assert restored.bytes_copied > 0
    assert (restored.boundary, restored.position) == (saved.boundary, saved.position)
    assert restored.boundary_age.sec >= 0
    assert restored.joint_deviation == pytest.approx(0.25)
    assert client.live_digest() == client.digest(name)


def test_the_same_steps_behind_a_restore_give_the_same_chunks(arm: Any, client: Any, name: str) -> None:
    client.call("snapshot", name=name)
    seen = []
    stamp = arm.stamp
    for _ in range(2):
        arm.stamp = stamp
        client.call("restore", name=name)
        arm.chunks.clear()
        client.run(step_limit=20).result()
        seen.append([chunk.data.tobytes() for chunk in arm.chunks])
    assert len(seen[0]) > 1
    assert seen[0] == seen[1]


def test_rollback_and_reset_go_back_to_where_they_say(arm: Any, client: Any, name: str) -> None:
    client.call("snapshot", name=name)
    client.run(step_limit=1).result()
    assert client.call("rollback", steps=2).error_code == ErrorCode.NONE
    assert client.live_digest() == client.digest(name)
    reset = client.call("reset", seed=3)
    assert (reset.error_code, reset.prefilled_tokens) == (ErrorCode.NONE, 0)
    start = next(
        capsule for capsule in client.call("list_capsules").capsules if capsule.boundary_kind == "episode_start"
    )
    assert start.pinned
    assert reset.position == start.position < client.call("restore", name=name).position


def test_a_fork_leaves_the_live_head_and_a_dropped_capsule_is_unknown(client: Any, name: str) -> None:
    before = client.live_digest()
    forked = client.call("fork", name=name, label="left")
    assert (forked.error_code, forked.capsule.label) == (ErrorCode.NONE, "left")
    assert client.live_digest() == before
    assert client.call("drop_capsule", name=name).bytes_freed == forked.capsule.bytes
    assert client.call("restore", name=name).error_code == ErrorCode.UNKNOWN_CAPSULE


def test_a_saved_capsule_comes_back_from_the_disk(client: Any, name: str) -> None:
    client.call("snapshot", name=name)
    digest = client.digest(name)
    saved = client.call("save_capsule", name=name)
    assert (saved.error_code, saved.capsule.durable) == (ErrorCode.NONE, True)
    assert saved.path.endswith(f"{name}.safetensors")
    assert client.call("load_capsule", name=name).error_code == ErrorCode.DUPLICATE_NAME
    assert client.call("drop_capsule", name=name, keep_file=True).bytes_freed == saved.capsule.bytes
    assert client.capsule(name).tier == "disk"
    loaded = client.call("load_capsule", name=name)
    assert (loaded.error_code, loaded.path, loaded.capsule.tier) == (ErrorCode.NONE, saved.path, "host")
    assert client.digest(name) == digest
    client.call("drop_capsule", name=name)
    assert client.call("load_capsule", name=name).error_code == ErrorCode.UNKNOWN_CAPSULE


@pytest.mark.parametrize(
    ("service", "fields", "code"),
    [
        ("restore", {"name": "unknown"}, ErrorCode.UNKNOWN_CAPSULE),
        ("restore", {"name": "../up"}, ErrorCode.BAD_NAME),
        ("restore", {"name": "", "mode": 0}, ErrorCode.BAD_NAME),
        ("restore", {"name": "episode_start", "mode": 7}, ErrorCode.BAD_REQUEST),
        ("rollback", {"steps": 0}, ErrorCode.BAD_REQUEST),
        ("rollback", {"steps": 100}, ErrorCode.BAD_REQUEST),
        ("rollback", {"steps": 1, "mode": 2}, ErrorCode.BAD_REQUEST),
        ("reset", {"instruction": "x" * 200}, ErrorCode.BAD_INSTRUCTION),
        ("reset", {"instruction": "  "}, ErrorCode.BAD_INSTRUCTION),
        ("snapshot", {"name": "-bad"}, ErrorCode.BAD_NAME),
        ("snapshot", {"name": "episode_start"}, ErrorCode.DUPLICATE_NAME),
        ("fork", {"name": "unlabelled"}, ErrorCode.BAD_REQUEST),
        ("drop_capsule", {"name": "unknown"}, ErrorCode.UNKNOWN_CAPSULE),
        ("save_capsule", {"name": "unknown"}, ErrorCode.UNKNOWN_CAPSULE),
        ("load_capsule", {"name": "unknown"}, ErrorCode.UNKNOWN_CAPSULE),
        ("sample_actions", {"seeds": []}, ErrorCode.BAD_REQUEST),
    ],
)
def test_a_refusal_disturbs_nothing(
    arm: Any, client: Any, name: str, service: str, fields: dict[str, Any], code: ErrorCode
) -> None:
    digest, epoch = client.live_digest(), arm.states[-1].epoch
    response = client.call(service, **fields)
    assert response.error_code == code, response
    assert response.error_msg
    assert client.live_digest() == digest
    assert arm.states[-1].epoch == epoch


def test_the_start_of_the_running_episode_is_not_dropped(client: Any, name: str) -> None:
    start = next(capsule.name for capsule in client.call("list_capsules").capsules if capsule.automatic)
    assert client.call("drop_capsule", name=start).error_code == ErrorCode.PINNED


def test_a_request_id_is_applied_once_and_answered_alike(arm: Any, client: Any, name: str) -> None:
    first = client.call("snapshot", request_id=name, name=name)
    assert first.error_code == ErrorCode.NONE
    assert client.call("snapshot", request_id=name, name=name) == first
    assert client.call("snapshot", name=name).error_code == ErrorCode.DUPLICATE_NAME
    assert client.call("snapshot", request_id=name, name="other").error_code == ErrorCode.BAD_REQUEST
    epoch = arm.states[-1].epoch
    both = [client.send("restore", request_id=f"{name}.restore", name=name) for _ in range(2)]
    answers = [client.answer(future) for future in both]
    assert answers[0] == answers[1]
    assert answers[0].error_code == ErrorCode.NONE
    assert arm.states[-1].epoch == epoch + 1


def test_a_verb_that_is_busy_can_be_tried_again_under_its_id(
    arm: Any, client: Any, name: str, wait_for: Callable[..., Any]
) -> None:
    client.call("snapshot", name=name)
    arm.echo = False
    epoch = arm.states[-1].epoch
    first = client.send("restore", name=name)
    wait_for(lambda: arm.states[-1].epoch == epoch + 1)
    assert client.call("rollback", request_id=name, steps=1).error_code == ErrorCode.BUSY
    assert client.run(step_limit=1).result().error_code == ErrorCode.BUSY
    assert client.call("snapshot", name=f"{name}.2").error_code == ErrorCode.NONE
    arm.catch_up()
    assert client.answer(first).error_code == ErrorCode.NONE
    assert client.call("rollback", request_id=name, steps=1).error_code == ErrorCode.NONE


def test_a_gate_that_does_not_answer_leaves_the_state_and_is_an_error(arm: Any, client: Any, name: str) -> None:
    client.call("snapshot", name=name)
    client.run(step_limit=20).result()
    digest, epoch = client.live_digest(), arm.states[-1].epoch
    arm.echo = False
    answer = client.call("restore", name=name)
    assert answer.error_code == ErrorCode.GATE_TIMEOUT
    assert (arm.states[-1].epoch, arm.states[-1].state) == (epoch + 1, HELD)
    assert client.live_digest() == digest
    arm.catch_up()


def test_restore_ends_a_running_goal_and_the_node_stays_held(
    arm: Any, client: Any, name: str, wait_for: Callable[..., Any]
) -> None:
    client.call("snapshot", name=name)
    run = client.run()
    wait_for(lambda: arm.open, what="the gate to open")
    epoch = arm.epoch
    assert client.call("restore", name=name).error_code == ErrorCode.NONE
    result = run.result()
    assert (result.error_code, result.reason) == (ErrorCode.CANCELED, "restored")
    assert (arm.states[-1].state, arm.states[-1].reason, arm.states[-1].epoch) == (HELD, "restored", epoch + 1)
    assert not arm.open
    assert client.live_digest() == client.digest(name)
