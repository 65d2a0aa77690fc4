# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Capsules between memory and disk, in a policy_node with little memory, and behind a restart."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashrt_ros.runtime.errors import ErrorCode

BUDGET = 4  # MiB


@pytest.fixture
def start_small(
    arm: Any, client: Any, start_policy: Callable[..., Any], wait_for: Callable[..., Any]
) -> Callable[[], Any]:
    def start() -> Any:
        before = len(arm.states)
        process = start_policy(autostart=True, capsule_budget=BUDGET)
        wait_for(lambda: len(arm.states) > before and client.state() == "active", 40.0, lambda: process.output)
        return process

    return start


def test_what_leaves_memory_is_restored_from_the_disk(
    arm: Any, client: Any, start_small: Callable[[], Any], wait_for: Callable[..., Any], tmp_path: Path
) -> None:
    first = start_small()
    client.run(instruction="lift the cup", step_limit=20).result()
    count = (BUDGET << 20) // client.call("snapshot", name="c0").capsule.bytes + 2
    digest = client.digest("c0")
    for number in range(1, count):
        client.run(step_limit=20).result()
        assert client.call("snapshot", name=f"c{number}").error_code == ErrorCode.NONE
    listed = client.call("list_capsules")
    assert client.capsule("c0").tier == "disk"
    assert client.capsule(f"c{count - 1}").tier == "host"
    assert listed.bytes_used <= listed.bytes_budget == BUDGET << 20
    assert 0 < listed.disk_bytes_used <= listed.disk_bytes_budget
    assert client.digest("c0") == digest  # from the header of its file
    assert client.call("snapshot", name="c0").error_code == ErrorCode.DUPLICATE_NAME

    run = client.run()
    wait_for(lambda: arm.open)
    restored = client.call("restore", name="c0")
    assert (restored.error_code, restored.prefilled_tokens) == (ErrorCode.NONE, 0)
    assert restored.note.startswith("read from the disk in ")
    assert run.result().reason == "restored"
    assert client.capsule("c0").tier == "host"
    assert client.live_digest() == digest
    assert client.call("restore", name="c0").note == ""
    client.call("drop_capsule", name="c1")
    assert client.run(start_from="c1").result().error_code == ErrorCode.UNKNOWN_CAPSULE
    assert client.run(start_from="c2", step_limit=1).result().error_code == ErrorCode.NONE

    pinned = client.call("fork", name="pinned", label="left")
    assert pinned.error_code == ErrorCode.NONE
    wait_for(lambda: all(capsule.durable for capsule in client.call("list_capsules").capsules))
    first.process.send_signal(signal.SIGINT)
    first.process.wait()
    restarts(client, start_small, tmp_path, digest)


def restarts(client: Any, start_small: Callable[[], Any], tmp_path: Path, digest: str) -> None:
    """What the next process finds, also of files that it cannot use."""
    shutil.copy(tmp_path / "capsules" / "c0.safetensors", tmp_path / "capsules" / "renamed.safetensors")
    second = start_small()
    assert "renamed.safetensors: holds the capsule 'c0'" in second.output
    assert "capsules on the disk: " in second.output
    assert (client.capsule("c0").tier, client.capsule("c0").durable) == ("disk", True)
    assert client.capsule("pinned").label == "left"
    assert client.call("reset", instruction="lift the cup").prefilled_tokens == 0
    assert client.call("restore", name="c0").error_code == ErrorCode.NONE
    assert client.live_digest() == digest
