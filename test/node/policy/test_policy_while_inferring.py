# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What is answered while an inference of a second or more is in progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashrt_ros.runtime.errors import ErrorCode


@pytest.fixture
def inferring(
    arm: Any, client: Any, start_policy: Callable[..., Any], wait_for: Callable[..., Any], slow_checkpoint: Path
) -> Any:
    """A goal whose first inference has begun; no chunk has come."""
    start_policy(autostart=True, checkpoint=slow_checkpoint)
    wait_for(lambda: client.state() == "active", 60.0)
    for service in ("snapshot", "list_capsules", "restore"):
        client.call(service)  # so that every service has been found
    arm.auto = False
    run = client.run(instruction="lift the cup")
    wait_for(lambda: arm.running)
    arm.tick(infer=True)
    wait_for(lambda: looked_at(client).boundary_kind == "observe", what="the inference")
    assert not arm.chunks
    return run


def looked_at(client: Any) -> Any:
    """The last committed boundary."""
    return client.call("snapshot", name=f"look.{time.monotonic_ns()}").capsule


def test_snapshot_and_list_do_not_wait_for_it(arm: Any, client: Any, inferring: Any) -> None:
    for index in range(5):
        assert client.call("snapshot", name=f"meanwhile.{index}").capsule.boundary_kind == "observe"
        assert client.call("list_capsules").error_code == ErrorCode.NONE
        assert not arm.chunks


def test_a_verb_cancels_it_and_its_chunk_never_comes(
    arm: Any, client: Any, inferring: Any, wait_for: Callable[..., Any]
) -> None:
    epoch = arm.epoch
    restored = client.send("restore", name="episode_start")
    wait_for(lambda: arm.epoch == epoch + 1)
    assert client.answer(restored).error_code == ErrorCode.NONE
    start = next(capsule.name for capsule in client.call("list_capsules").capsules if capsule.automatic)
    assert client.live_digest() == client.digest(start), "half of the inference is left in the state"
    assert inferring.result().reason == "restored"
    client.run(step_limit=1)
    wait_for(lambda: arm.running)
    arm.tick(infer=True)
    chunk = arm.newest_chunk()
    assert [chunk.epoch for chunk in arm.chunks] == [epoch + 1] == [chunk.epoch]
    found = wait_for(lambda: (now := figures(client, "inference")).get("count") == "1" and now, what="its diagnostics")
    assert "dropped, older epoch" not in found, "it has waited for the inference"


def test_at_the_step_limit_it_is_finished_so_that_the_state_depends_on_the_steps_alone(
    arm: Any, client: Any, inferring: Any, wait_for: Callable[..., Any]
) -> None:
    arm.take(arm.newest_chunk())
    inferring.cancel()
    inferring.result()
    run = client.run(step_limit=2)
    wait_for(lambda: arm.running)
    arm.tick(infer=True)
    arm.take(arm.newest_chunk(after=1))
    arm.tick(infer=True)
    wait_for(lambda: looked_at(client).boundary_kind == "observe", what="the second inference")
    arm.tick()
    arm.close("step_limit")
    result = run.result()
    assert (result.error_code, result.reason, result.steps) == (ErrorCode.NONE, "step_limit", 2)
    saved = looked_at(client)
    assert (saved.boundary_kind, saved.boundary) == ("act", result.final_boundary)
    assert len(arm.chunks) == 3


def figures(client: Any, status: str) -> dict[str, str]:
    found = client.diagnostics.get(status)
    return {pair.key: pair.value for pair in found.values} if found else {}


def test_the_warm_up_is_no_inference_and_the_first_chunk_starts_at_its_first_row(
    arm: Any, client: Any, start_policy: Callable[..., Any], wait_for: Callable[..., Any]
) -> None:
    """Ticks go by before the first chunk, and nothing is executed meanwhile."""
    start_policy(autostart=True)
    wait_for(lambda: client.state() == "active", 60.0)
    client.diagnostics.clear()
    wait_for(lambda: "inference" in client.diagnostics)
    assert figures(client, "inference")["count"] == "0"
    arm.auto = False
    run = client.run(instruction="lift the cup")
    wait_for(lambda: arm.running)
    arm.tick(infer=True)
    for _ in range(5):
        arm.tick()
    chunk = arm.newest_chunk()
    assert (chunk.start, chunk.horizon) == (0, 16)
    wait_for(lambda: figures(client, "inference")["count"] == "1", what="the diagnostics of one inference")
    run.cancel()
    run.result()
