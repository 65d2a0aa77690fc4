# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""An episode of the tiny policy, recorded without ROS, and the bags that are made of it; programs that run nodes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child_processes import children, until_it_runs
from rosbags.rosbag2 import StoragePlugin, Writer

from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.policy.capsule_folder import CapsuleFolder
from flashrt_ros.policy.contract import load_contract
from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.replay_record import Done, Record, array_sha256, inputs_of
from flashrt_ros.policy.replay_session import RecordedSession
from flashrt_ros.policy.replay_types import typestore
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.tools.audit import random_observation

CONTRACT = Path(__file__).resolve().parents[2] / "config" / "demo_contract.yaml"
PERIOD = 100_000_000
TASK = "press the red button"
_STORE = typestore()

Message = tuple[str, int, Any]
"""Topic, time of recording (ns), message."""


def make(kind: str, **fields: Any) -> Any:
    """A message; what is not given is empty."""
    described = _STORE.fielddefs[kind][1]
    return _STORE.types[kind](**{name: fields.get(name, _empty(description)) for name, description in described})


def _empty(description: Any) -> Any:
    node, detail = description
    if node == 2:  # another message
        return make(detail)
    if node in (3, 4):
        return []
    return "" if detail[0] == "string" else False if detail[0] == "bool" else 0


def time_message(stamp: int, kind: str = "Time") -> Any:
    seconds, rest = divmod(stamp, 1_000_000_000)
    return make(f"builtin_interfaces/msg/{kind}", sec=seconds, nanosec=rest)


def header(stamp: int) -> Any:
    return make("std_msgs/msg/Header", stamp=time_message(stamp))


@dataclass
class Tape:
    """Listens to a session and keeps the messages that its nodes would have published."""

    joints: tuple[str, ...]
    messages: list[Message] = field(default_factory=list)
    capsules: list[Capsule] = field(default_factory=list)
    drawn: list[np.ndarray] = field(default_factory=list)
    stamp: int = 0
    clock: int = 1_000_000_000
    instruction: str = ""

    def done(self, done: Done) -> None:
        record = replace(done.record, stamp=self.stamp + done.record.delay)
        if done.observation is not None:
            self.stamp = done.observation.stamp
            record = replace(record, inputs=inputs_of(done.observation))
            self._observed(done.observation)
        if done.capsule is not None:
            self.capsules.append(done.capsule)
        if done.chunk is not None:
            record = replace(record, output_sha256=array_sha256(done.chunk.actions))
            self.drawn.append(done.chunk.actions)
        self.keep("/policy/boundary", record_message(record))
        if done.chunk is not None:
            self._chunk(done.chunk.actions, done.chunk.boundary.instruction)

    def state_wanted(self) -> bool:
        return False

    def keep(self, topic: str, message: Any) -> None:
        self.clock += 1_000
        self.messages.append((topic, self.clock, message))

    def without(self, *topics: str) -> list[Message]:
        return [message for message in self.messages if message[0] not in topics]

    def _observed(self, seen: Observation) -> None:
        for view, image in seen.images.items():
            height, width, _ = image.shape
            self.keep(
                f"/camera/{view}/image_raw",
                make(
                    "sensor_msgs/msg/Image",
                    header=header(seen.stamp),
                    height=height,
                    width=width,
                    encoding="rgb8",
                    step=3 * width,
                    data=image.reshape(-1),
                ),
            )
        position = np.asarray(seen.state, np.float64)
        none = np.zeros(0)
        self.keep(
            "/joint_states",
            make(
                "sensor_msgs/msg/JointState",
                header=header(seen.stamp),
                name=list(self.joints),
                position=position,
                velocity=none,
                effort=none,
            ),
        )

    def _chunk(self, rows: np.ndarray, instruction: str) -> None:
        self.keep(
            "/policy/action_chunk",
            make(
                "flashrt_interfaces/msg/ActionChunk",
                stamp=time_message(self.stamp),
                observation_stamp=time_message(self.stamp),
                epoch=1,
                chunk_id=len(self.drawn),
                instruction=instruction,
                joint_names=list(self.joints),
                horizon=len(rows),
                dt=time_message(PERIOD, "Duration"),
                data=rows.reshape(-1),
            ),
        )


def record_message(record: Record) -> Any:
    """A record as the message that policy_node publishes."""
    plain = {name: getattr(record, name) for name in Record.__slots__ if name not in ("stamp", "delay", "inputs")}
    return make(
        "flashrt_interfaces/msg/BoundaryRecord",
        **plain,
        stamp=time_message(record.stamp),
        delay=time_message(record.delay, "Duration"),
        input_keys=[part.key for part in record.inputs],
        input_stamps=[time_message(part.stamp) for part in record.inputs],
        input_sha256=[part.sha256 for part in record.inputs],
    )


def write(path: Path, messages: Iterable[Message], storage: StoragePlugin = StoragePlugin.MCAP) -> Path:
    """Write a bag."""
    with Writer(path, version=9, storage_plugin=storage) as writer:
        connections: dict[str, Any] = {}
        for topic, time, message in messages:
            kind = message.__msgtype__
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, kind, typestore=_STORE)
            writer.write(connections[topic], time, _STORE.serialize_cdr(message, kind))
    return path


@pytest.fixture(scope="session")
def write_bag() -> Callable[..., Path]:
    """`write_bag(path, messages, storage)` writes a bag and returns its path."""
    return write


@pytest.fixture(scope="session")
def make_message() -> Callable[..., Any]:
    """`make_message(type, **fields)`."""
    return make


@pytest.fixture(scope="session")
def make_tape() -> Callable[[tuple[str, ...]], Tape]:
    """`make_tape(joints)`."""
    return Tape


@pytest.fixture(scope="session")
def contract() -> Path:
    return CONTRACT


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def policy(checkpoint: Path) -> Policy:
    return load_policy(checkpoint, contract=load_contract(CONTRACT).manifest())


@pytest.fixture(scope="session")
def tape(policy: Policy) -> Tape:
    """Six chunks, with a restore and another instruction among them."""
    tape = Tape(policy.model.config.state_names)
    session = RecordedSession(policy, listener=tape)
    rng = np.random.default_rng(3)
    seen = iter([random_observation(policy, rng, (n + 1) * 8 * PERIOD) for n in range(6)])

    def run(chunks: int) -> None:
        for _ in range(chunks):
            session.observe(next(seen))
            session.executed(session.act().act_index, 3)

    session.begin(TASK, seed=7)
    run(2)
    session.snapshot("before")
    run(1)
    session.restore("before")
    run(1)
    session.instruct("press the blue button")
    run(2)
    return tape


@pytest.fixture(scope="session")
def bag(tape: Tape, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tape as an MCAP bag."""
    return write(tmp_path_factory.mktemp("bag") / "bag", tape.messages)


@pytest.fixture(scope="session")
def capsules(tape: Tape, policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The capsules that were taken, as files."""
    folder = tmp_path_factory.mktemp("capsules") / "capsules"
    target = CapsuleFolder(folder, 1 << 30)
    for capsule in tape.capsules:
        target.write(capsule, policy.plan.buffers, lambda name: False)
    target.close()
    return folder


@pytest.fixture
def interrupt_nodes(root: Path) -> Callable[..., list[str]]:
    """`interrupt_nodes(signal, module, *arguments)` sends a program a signal once it runs policy_node.

    It must end in order, and all that it had started with it; returns the command lines of that.
    """

    def interrupt(number: signal.Signals, module: str, *arguments: str) -> list[str]:
        command = [sys.executable, "-m", module, *arguments]
        program = subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        started: dict[int, str] = {}
        try:
            started = until_it_runs("policy_node", program, 60.0)
            program.send_signal(number)
            _, trouble = program.communicate(timeout=60.0)
            assert not [line for process, line in started.items() if Path(f"/proc/{process}").exists()]
            assert (program.returncode, trouble) == (130, "interrupted\n")
        finally:
            for process in (*children(program.pid), program.pid, *started):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        return list(started.values())

    return interrupt
