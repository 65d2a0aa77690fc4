# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The tree of config/ against a policy_node: pick, check, roll back, retry."""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from std_msgs.msg import Bool

ROOT = Path(__file__).resolve().parents[3]
TREE = ROOT / "config" / "pick_retry_tree.yaml"
pytestmark = pytest.mark.usefixtures("policy")


@pytest.fixture
def gripper(spun: Any) -> Iterator[Callable[[Callable[[], bool]], None]]:
    """`gripper(holding)` publishes what it says, several times a second."""
    publisher, timers = spun.create_publisher(Bool, "grasp/holding", 10), []

    def start(holding: Callable[[], bool]) -> None:
        timers.append(spun.create_timer(0.1, lambda: publisher.publish(Bool(data=holding()))))

    yield start
    for timer in timers:
        spun.destroy_timer(timer)
    spun.destroy_publisher(publisher)


@pytest.fixture
def run_tree(tmp_path: Path) -> Iterator[Callable[[Path], subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(tree: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "flashrt_ros.node.tree_node", "--ros-args", "-p", f"tree:={tree}"]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()


def runs(arm: Any) -> list[tuple[int, list[bytes]]]:
    """The chunks of each epoch that had any, in order."""
    grouped = itertools.groupby(arm.chunks, lambda chunk: chunk.epoch)
    return [(epoch, [chunk.data.tobytes() for chunk in chunks]) for epoch, chunks in grouped]


def quick(tmp_path: Path) -> Path:
    """The tree of config/ with a check that gives up soon."""
    path = tmp_path / "tree.yaml"
    text = TREE.read_text()
    assert "time_limit: 2.0" in text
    path.write_text(text.replace("time_limit: 2.0", "time_limit: 0.5"))
    return path


def test_a_failed_check_rolls_back_and_the_retry_plans_something_else(
    arm: Any, client: Any, gripper: Callable[..., None], run_tree: Callable[..., Any], tmp_path: Path
) -> None:
    gripper(lambda: len(runs(arm)) >= 4)  # the approach and two attempts that fail come before
    for _ in range(2):  # the second time a capsule of that name is there
        arm.chunks.clear()
        process = run_tree(quick(tmp_path))
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
        assert "the tree ended: SUCCESS" in output
        assert "RESTORE" not in output
        attempts = [chunks[0] for _, chunks in runs(arm)[1:]]
        assert len(attempts) == len(set(attempts)) == 3
    saved = client.capsule("before_grasp")
    assert saved.instruction == "pick up the cup"


def test_when_no_attempt_succeeds_the_tree_fails_and_the_memory_is_rolled_back(
    arm: Any, client: Any, gripper: Callable[..., None], run_tree: Callable[..., Any], tmp_path: Path
) -> None:
    gripper(lambda: False)
    process = run_tree(quick(tmp_path))
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1, output
    assert len(runs(arm)) == 4
    assert client.live_digest() == client.digest("before_grasp")
    assert arm.states[-1].reason == "restored"


def test_a_signal_cancels_the_run_and_ends_well(
    arm: Any, gripper: Callable[..., None], run_tree: Callable[..., Any], tmp_path: Path, wait_for: Callable[..., Any]
) -> None:
    path = tmp_path / "endless.yaml"
    path.write_text("tree: {sequence: [run_policy: {instruction: lift the cup}]}\n")
    process = run_tree(path)
    wait_for(lambda: arm.open, 30.0)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 0, output
    assert "Traceback" not in output
    wait_for(lambda: not arm.open and arm.states[-1].reason == "canceled", what="the canceled goal")


def test_a_tree_that_is_wrong_is_named_before_anything_moves(run_tree: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("tree: {sequence: [run_polcy: {instruction: lift the cup}]}\n")
    output, _ = run_tree(path).communicate(timeout=30)
    assert "there is no 'run_polcy'" in output
    assert "Traceback" not in output
