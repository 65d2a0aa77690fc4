# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""policy_node on the GPU: configured, run, ended, and started again where it was."""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.models.tiny_pi0 import write_tiny_pi0
from flashrt_ros.runtime.errors import ErrorCode

pytest.importorskip("rclpy", reason="needs ROS 2")


def _helpers_of_the_node_tests() -> ModuleType:
    path = Path(__file__).resolve().parents[1] / "node" / "policy" / "conftest.py"
    spec = importlib.util.spec_from_file_location("helpers_of_the_node_tests", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_helpers = _helpers_of_the_node_tests()
spun, one_arm, arm, client = _helpers.spun, _helpers.one_arm, _helpers.arm, _helpers.client
contract, start_policy, wait_for = _helpers.contract, _helpers.start_policy, _helpers.wait_for

COMPILING = 300.0  # s
SAVED = "here"


@pytest.fixture(scope="module", params=["hybrid", "pi0"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    if request.param == "pi0":
        return write_tiny_pi0(folder, "pi0", views=["front", "wrist"], action_mode="delta")
    return write_tiny_checkpoint(folder)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def go_on(arm: Any, client: Any, stamp: int) -> list[bytes]:
    """The first two chunks behind the capsule, for the same observations each time."""
    arm.stamp = stamp
    assert client.call("restore", name=SAVED).error_code == ErrorCode.NONE
    arm.chunks.clear()
    result = client.run(step_limit=20).result()
    assert (result.error_code, result.reason) == (ErrorCode.NONE, "step_limit"), result
    found = [chunk.data.tobytes() for chunk in arm.chunks[:2]]
    assert len(found) == 2
    return found


def device_status(client: Any, wait_for: Callable[..., Any]) -> dict[str, str]:
    client.diagnostics.clear()
    status = wait_for(lambda: client.diagnostics.get("device"), what="a report of the device")
    assert status.message == "as planned"
    return {pair.key: pair.value for pair in status.values}


def test_a_node_goes_on_to_the_byte_behind_a_restore_and_behind_a_restart(
    arm: Any,
    client: Any,
    start_policy: Callable[..., Any],
    wait_for: Callable[..., Any],
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    chosen = f"device cuda: {torch.cuda.get_device_name(0)}"
    first = start_policy(device="cuda")
    assert client.transition("configure", COMPILING), first.output
    first.says(chosen)
    assert client.transition("activate")
    run = client.run(instruction="lift the cup", seed=5, step_limit=20)
    assert run.result().error_code == ErrorCode.NONE
    assert client.call("snapshot", name=SAVED).error_code == ErrorCode.NONE
    status, stamp, digest = device_status(client, wait_for), arm.stamp, client.digest(SAVED)
    assert status["backend"] == "cuda"
    assert status["device"].startswith(torch.cuda.get_device_name(0))
    planned = go_on(arm, client, stamp)
    assert client.live_digest() != digest
    assert go_on(arm, client, stamp) == planned
    assert device_status(client, wait_for)["captures"] == status["captures"]
    wait_for(lambda: client.capsule(SAVED).durable, what="the capsule's file")
    ends_cleanly(first)

    compiled = {path: path.stat().st_mtime_ns for path in cache.rglob("*.cubin")}
    assert compiled
    said, states = len(first.output), len(arm.states)
    second = start_policy(autostart=True)
    wait_for(lambda: len(arm.states) > states and client.state() == "active", COMPILING, lambda: second.output[said:])
    second.says(chosen, after=said)
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.cubin")} == compiled
    assert client.digest(SAVED) == digest
    assert go_on(arm, client, stamp) == planned
    ends_cleanly(second)


def ends_cleanly(process: Any) -> None:
    process.process.send_signal(signal.SIGINT)
    assert process.process.wait(20.0) == 0, process.output
