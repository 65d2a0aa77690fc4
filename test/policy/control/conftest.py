# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A two-joint robot and a policy around a controller: time, measured joints and chunks are the test's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashrt_ros.policy.contract import Contract, load_contract
from flashrt_ros.policy.controller import Controller, ExecutedTick
from flashrt_ros.policy.gate import Gate, GateState
from flashrt_ros.policy.timed import TimedController

PERIOD = 100_000_000
JOINTS = ["a", "b"]
HORIZON = 6
CONTRACT = """
observation:
  images: {front: {topic: image, type: sensor_msgs/msg/Image, qos: reliable, max_age: 0.3}}
  state: {topic: joint_states, type: sensor_msgs/msg/JointState, joints: [b, a], max_age: 0.3}
action:
  joints: [a, b]
  rate: 10.0
  mode: absolute
  limits: {position: {a: [-1.0, 1.0], b: [-1.0, 1.0]}, step: {a: 0.1, b: 0.1}}
  start_tolerance: 0.15
  threshold: 3
  command: {topic: joint_command, type: sensor_msgs/msg/JointState}
  safety: hold
heartbeat_timeout: 0.5
"""


@dataclass
class Record:
    """Everything that a controller put out, in order."""

    log: list[Any] = field(default_factory=list)
    ahead: list[list[float]] = field(default_factory=list)
    """Joint a of the rows that were handed over with each command."""
    safety_stamps: list[int] = field(default_factory=list)

    def command(self, stamp: int, rows: np.ndarray) -> None:
        self.log.append((stamp, rows[0].tolist()))
        self.ahead.append(rows[1:, 0].round(9).tolist())

    def safety(self, stamp: int, rows: np.ndarray) -> None:
        self.command(stamp, rows)
        self.safety_stamps.append(stamp)

    def executed(self, tick: ExecutedTick) -> None:
        self.log.append(tick)

    def gate(self, state: GateState) -> None:
        self.log.append(state)

    @property
    def commands(self) -> list[tuple[int, list[float]]]:
        """(stamp, positions) of every command."""
        return [entry for entry in self.log if isinstance(entry, tuple)]

    @property
    def targets(self) -> list[float]:
        """Joint a of every command."""
        return [round(positions[0], 9) for _, positions in self.commands]

    @property
    def ticks(self) -> list[ExecutedTick]:
        """Every report of a tick."""
        return [entry for entry in self.log if isinstance(entry, ExecutedTick)]

    @property
    def gates(self) -> list[GateState]:
        """Every report of the gate."""
        return [entry for entry in self.log if isinstance(entry, GateState)]

    @property
    def requests(self) -> list[int]:
        """Stamps of the ticks that asked for an inference."""
        return [tick.stamp for tick in self.ticks if tick.infer]


class Rig:
    """Events for a controller, with values that a healthy policy and robot would give."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.now = 0
        self.record = Record()
        self.chunk_id = 0
        self.controller: Controller

    def hold_epoch(self, epoch: int) -> None:
        self.controller.policy_state(epoch, running=False, step_limit=0, reason="test")

    def run_epoch(self, epoch: int, step_limit: int = 0) -> None:
        self.controller.policy_state(epoch, running=True, step_limit=step_limit, reason="")

    def measure(self, a: float = 0.0, b: float = 0.0, stamp: int | None = None) -> None:
        self.controller.measured(["b", "x", "a"], [b, 9.0, a], self.now if stamp is None else stamp)

    def plan(self, first: float, observation: int | None = None, **changed: Any) -> None:
        """Send a chunk that moves joint a by 0.01 a row from `first`, for the newest request's observation."""
        self.chunk_id += 1
        values = np.zeros((HORIZON, 2))
        values[:, 0] = first + 0.01 * np.arange(HORIZON)
        if observation is None:
            observation = self.record.requests[-1]
        chunk = {
            "epoch": self.controller.gate.epoch,
            "chunk_id": self.chunk_id,
            "observation_stamp": observation,
            "names": JOINTS,
            "data": values.ravel(),
            "horizon": HORIZON,
            "start": 0,
            "dt": PERIOD,
            "exact": False,
        }
        self.controller.chunk(**(chunk | changed))


class Timed:
    """A rig with a timer."""

    def __init__(
        self, rig: Rig, *, enabled: bool = True, exact_allowed: bool = False, dry_run: bool = False, **action: Any
    ) -> None:
        """`action`: what the contract says instead, of the section `action`."""
        self.rig = rig
        rig.contract = replace(rig.contract, action=replace(rig.contract.action, **action))
        gate = Gate(epoch=0, enabled=enabled, dry_run=dry_run, exact_allowed=exact_allowed, now=0)
        self.controller = TimedController(rig.contract, rig.record, gate, lambda: rig.now, self._look_for_stop)
        self.stopped_for = 0.0
        """Seconds for which the process is stopped right before it would send something."""
        rig.controller = self.controller
        self.gate, self.record = gate, rig.record
        self.controller.activate()
        rig.hold_epoch(1)

    def tick(self, count: int = 1, *, a: float | None = 0.0) -> None:
        """Let periods pass; `a`: the measured joint, None: nothing is measured."""
        for _ in range(count):
            self.rig.now += PERIOD
            if a is not None:
                self.rig.measure(a)
            self.controller.tick()

    def start(self, epoch: int = 1, step_limit: int = 0) -> None:
        """Run an epoch up to its first row."""
        self.rig.run_epoch(epoch, step_limit)
        self.tick()
        self.rig.plan(0.0)
        self.tick()
        assert self.gate.open
        assert self.record.gates[-1] == self.gate.state

    def _look_for_stop(self) -> None:
        seconds, self.stopped_for = self.stopped_for, 0.0
        if seconds:
            self.controller.stopped(seconds)

    def token(self) -> str:
        return self.record.gates[-1].reason.partition(":")[0]


@pytest.fixture
def contract_text() -> str:
    return CONTRACT


@pytest.fixture
def contract(tmp_path: Path) -> Contract:
    file = tmp_path / "contract.yaml"
    file.write_text(CONTRACT)
    return load_contract(file)


@pytest.fixture
def rig(contract: Contract) -> Rig:
    """The test adds a controller."""
    return Rig(contract)


@pytest.fixture
def robot(rig: Rig) -> Timed:
    """A rig with a timer."""
    return Timed(rig)


@pytest.fixture
def timed(rig: Rig) -> Callable[..., Timed]:
    """`timed(enabled=True, exact_allowed=False, strategy="sync")` makes a rig with a timer, and another contract."""
    return functools.partial(Timed, rig)
