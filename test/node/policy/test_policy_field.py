# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What users of such servers report, asked of this one over real topics and services."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashrt_ros.runtime.errors import ErrorCode


@pytest.fixture
def half_run(arm: Any, client: Any, policy: Any, wait_for: Callable[..., Any]) -> Any:
    """A run whose newest chunk was executed for 5 rows."""
    arm.auto = False
    run = client.run(instruction="lift the cup", seed=3)
    wait_for(lambda: arm.running)
    arm.tick(infer=True)
    arm.take(arm.newest_chunk())
    for _ in range(5):
        arm.tick()
    return run


def test_after_a_reset_the_queue_is_empty_and_the_next_action_is_the_first_of_a_new_chunk(
    arm: Any, client: Any, half_run: Any, wait_for: Callable[..., Any]
) -> None:
    old = arm.chunks[-1]
    assert client.call("reset", seed=3).error_code == ErrorCode.NONE
    assert half_run.result().reason == "reset"
    assert (arm.rows, arm.cursor, arm.open) == (0, 0, False)
    client.run()
    wait_for(lambda: arm.running)
    arm.tick(infer=True)
    chunk = arm.newest_chunk(after=1)
    assert (chunk.start, chunk.exact) == (0, False)
    assert chunk.chunk_id > old.chunk_id
    assert chunk.epoch > old.epoch


def test_no_action_of_an_instruction_comes_after_the_switch_to_another(
    arm: Any, client: Any, policy: Any, wait_for: Callable[..., Any]
) -> None:
    client.run(instruction="lift the cup")
    wait_for(lambda: arm.open)
    epoch = arm.epoch
    result = client.run(instruction="drop the cup", step_limit=20).result()
    assert result.error_code == ErrorCode.NONE
    for chunk in arm.chunks:
        assert chunk.instruction == ("lift the cup" if chunk.epoch <= epoch else "drop the cup")
    assert arm.states[-1].instruction == "drop the cup"


def test_a_restore_prefills_nothing_takes_far_less_than_a_cold_start_and_goes_on_to_the_bit(
    arm: Any, client: Any, policy: Any
) -> None:
    cold = client.call("reset", instruction=f"an instruction that nobody gave before, at {time.monotonic_ns()}")
    assert (cold.error_code, cold.prefilled_tokens > 0) == (ErrorCode.NONE, True)
    client.run(step_limit=60).result()
    client.call("snapshot", name="field.restore")
    digest = client.digest("field.restore")
    seconds, planned = [], []
    stamp = arm.stamp
    for _ in range(3):
        arm.chunks.clear()
        assert client.run(step_limit=3).result().steps == 3
        planned.append([chunk.data.tobytes() for chunk in arm.chunks])
        arm.stamp = stamp  # so that the same is observed
        restored = client.call("restore", name="field.restore")
        assert (restored.error_code, restored.prefilled_tokens) == (ErrorCode.NONE, 0)
        seconds.append(restored.taken.sec + restored.taken.nanosec * 1e-9)
        assert client.live_digest() == digest
    assert planned[0] == planned[1] == planned[2] != []
    assert min(seconds) < (cold.taken.sec + cold.taken.nanosec * 1e-9) / 2


def test_memory_stays_over_snapshots_that_are_dropped(
    arm: Any, client: Any, policy: Any, wait_for: Callable[..., Any]
) -> None:
    client.run(instruction="lift the cup", step_limit=5).result()

    def cycle(count: int) -> int:
        for number in range(count):
            assert client.call("snapshot", name=f"cycle.{number}").error_code == ErrorCode.NONE
            assert client.call("drop_capsule", name=f"cycle.{number}").error_code == ErrorCode.NONE
        wait_for(lambda: not any(c.name.startswith("cycle.") for c in client.call("list_capsules").capsules))
        return int(client.call("list_capsules").bytes_used)

    used = cycle(40)
    before = resident(policy.process.pid)
    assert cycle(150) == used  # with those before, fewer than are busy however fast they come
    assert resident(policy.process.pid) < before * 1.05


def resident(pid: int) -> int:
    """Pages of a process in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1])


def test_a_client_that_gave_up_gets_the_same_answer_under_the_same_id_and_it_was_applied_once(
    arm: Any, client: Any, half_run: Any, wait_for: Callable[..., Any]
) -> None:
    client.call("snapshot", name="field.retry")
    arm.echo = False
    epoch = arm.states[-1].epoch
    given_up = client.send("restore", request_id="field.retry", name="field.retry")
    wait_for(lambda: arm.states[-1].epoch == epoch + 1)
    given_up.cancel()
    arm.catch_up()
    first = client.call("restore", request_id="field.retry", name="field.retry")
    assert first.error_code == ErrorCode.NONE
    assert client.call("restore", request_id="field.retry", name="field.retry") == first
    assert arm.states[-1].epoch == epoch + 1
