# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flashrt_ros.runtime.errors import ErrorCode

HELD = 0


def number(boundary: str) -> int:
    """How many boundaries its process had committed."""
    return int(boundary.rpartition("-")[2])


def test_a_killed_node_comes_back_held_at_the_newest_durable_boundary(
    arm: Any, client: Any, start_policy: Callable[..., Any], wait_for: Callable[..., Any], tmp_path: Path
) -> None:
    first = start_policy(autostart=True)
    wait_for(lambda: client.state() == "active", 40.0)
    client.run(instruction="lift the cup", step_limit=20).result()
    saved = client.call("snapshot", name="safe")
    wait_for(lambda: arm.states[-1].durable_boundary == saved.boundary)
    run = client.run()
    wait_for(lambda: arm.open and arm.states[-1].durable_boundary != saved.boundary)
    epoch = arm.epoch
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    assert not run.done()
    durable = arm.states[-1].durable_boundary
    (tmp_path / "capsules" / "broken.safetensors").write_bytes(b"not a capsule")
    second = start_policy(autostart=True)
    wait_for(lambda: arm.epoch > epoch and not arm.open, 40.0, lambda: second.output)
    second.says("restored boundary")
    wait_for(lambda: arm.states[-1].reason == "restored at the start")
    state = arm.states[-1]
    assert state.epoch - epoch in (1, 2)  # raised when it hears the gate and when it is activated, if in this order
    assert state.state == HELD
    assert state.boundary == state.durable_boundary
    assert number(state.boundary) >= number(durable) > number(saved.boundary)
    assert state.instruction == "lift the cup"
    assert "broken.safetensors" in second.output
    assert client.run(step_limit=20).result().error_code == ErrorCode.NONE


def test_what_followed_the_newest_capsule_comes_back_to_the_byte(
    arm: Any, client: Any, start_policy: Callable[..., Any], wait_for: Callable[..., Any]
) -> None:
    first = start_policy(autostart=True)
    wait_for(lambda: client.state() == "active", 40.0)
    client.run(instruction="lift the cup", step_limit=20).result()
    client.call("snapshot", name="safe")
    client.run(step_limit=30).result()
    wait_for(lambda: arm.states[-1].durable_boundary == arm.states[-1].boundary)
    boundary, position, digest = arm.states[-1].boundary, arm.states[-1].position, client.live_digest()
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    epoch = arm.epoch
    second = start_policy(autostart=True)
    wait_for(lambda: arm.epoch > epoch, 40.0, lambda: second.output)
    wait_for(lambda: arm.states[-1].reason == "restored at the start")
    assert (arm.states[-1].boundary, arm.states[-1].position) == (boundary, position)
    second.says("from capsule safe and")
    assert client.live_digest() == digest


def test_the_start_of_an_episode_is_durable_soon(
    arm: Any, client: Any, start_policy: Callable[..., Any], wait_for: Callable[..., Any]
) -> None:
    start_policy(autostart=True, restore_on_start=False)
    wait_for(lambda: client.state() == "active", 40.0)
    client.run(instruction="lift the cup", step_limit=1).result()

    def start() -> Any:
        listed = client.call("list_capsules").capsules
        return next(capsule for capsule in listed if capsule.boundary_kind == "episode_start")

    wait_for(lambda: start().durable)
    wait_for(lambda: arm.states[-1].durable_boundary == arm.states[-1].boundary)
    assert client.call("reset", instruction="drop the cup").error_code == ErrorCode.NONE
    wait_for(lambda: arm.states[-1].durable_boundary == arm.states[-1].boundary)
