# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""policy_node in a process of its own, and in the test's process what stands on the other side of its topics."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import wait

ROOT = Path(__file__).resolve().parents[3]

if importlib.util.find_spec("rclpy") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from policy_arm import Arm
    from policy_client import Client
    from policy_process import Process
    from rclpy.node import Node
    from spinning import spinning

    from flashrt_ros.models.tiny import JOINTS, write_tiny_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="session")
def slow_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that takes a second or so to act, in many short stages."""
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("slow"))
    values = json.loads((folder / "config.json").read_text())
    values["framework"]["action_model"]["num_inference_timesteps"] = 400
    (folder / "config.json").write_text(json.dumps(values))
    return folder


@pytest.fixture(scope="session")
def contract(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's contract: lockstep."""
    return ROOT / "config" / "demo_contract.yaml"


@pytest.fixture(scope="session")
def timed_contract(contract: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same on a wall clock."""
    path = tmp_path_factory.mktemp("contract") / "timed.yaml"
    path.write_text("\n".join(line for line in contract.read_text().splitlines() if not line.startswith("lockstep")))
    return path


@pytest.fixture(scope="module")
def spun(context: None) -> Iterator[Node]:
    """A node of a module's own, spun by a thread; later modules must not hear its arm."""
    with spinning("peer") as node:
        yield node


@pytest.fixture(scope="module")
def one_arm(spun: Node) -> Arm:
    return Arm(spun)


@pytest.fixture
def arm(one_arm: Arm) -> Iterator[Arm]:
    """The arm, with nothing of an earlier test's faults."""
    one_arm.auto = one_arm.echo = True
    one_arm.absent, one_arm.encoding, one_arm.dry_run = set(), "rgb8", False
    one_arm.frozen.clear()
    one_arm.positions = dict.fromkeys(JOINTS, 0.1)
    one_arm.chunks.clear()
    one_arm.states[:-1] = []
    yield one_arm
    one_arm.auto = False


@pytest.fixture(scope="module")
def client(spun: Node) -> Client:
    return Client(spun)


@pytest.fixture
def start_policy(tmp_path: Path, contract: Path, checkpoint: Path) -> Iterator[Callable[..., Process]]:
    """Start a policy_node of the test's own; without other words it is the shared one's twin."""
    started: list[Process] = []

    def start(**parameters: object) -> Process:
        defaults = {"checkpoint": checkpoint, "contract": contract, "capsule_folder": tmp_path / "capsules"}
        process = Process(tmp_path / "policy.log", **{**defaults, "gate_timeout": 5.0, **parameters})
        started.append(process)
        return process

    yield start
    for process in started:
        process.end()


@pytest.fixture(scope="module")
def policy(
    one_arm: Arm, client: Client, checkpoint: Path, contract: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Process]:
    """An active policy_node that the tests of a module share. Each begins with a goal or a verb of its own."""
    folder = tmp_path_factory.mktemp("policy")
    process = Process(
        folder / "log",
        checkpoint=checkpoint,
        contract=contract,
        capsule_folder=folder / "capsules",
        autostart=True,
        world="simulated",
        observation_timeout=2.0,
        gate_timeout=5.0,
    )
    try:
        wait(lambda: process.process.poll() is not None or client.state() == "active", 40.0, lambda: process.output)
        assert process.process.poll() is None, process.output
        yield process
    finally:
        process.end()


@pytest.fixture(scope="module")
def unconfigured(spun: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A policy_node that the tests of a module share and configure."""
    folder = tmp_path_factory.mktemp("policy")
    process = Process(folder / "log", capsule_folder=folder / "capsules")
    yield process
    process.end()


@pytest.fixture
def wait_for() -> Callable[..., Any]:
    """`wait_for(condition, timeout, what)` returns the first true value, or fails."""
    return wait
