# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The contract between a policy and a robot: which topics are observed, which joints are commanded, and the limits."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from flashrt_ros.policy.contract_action import STAMPED_COMMAND_TYPES, Action, read_action
from flashrt_ros.policy.contract_observation import Observation, read_observation
from flashrt_ros.policy.yaml_reader import Value, read_yaml


@dataclass(frozen=True, slots=True)
class Lockstep:
    """Simulated time advances by commands; a chunk applies exactly `apply_after` ticks after its observation."""

    apply_after: int


@dataclass(frozen=True, slots=True)
class Contract:
    """A contract file, checked.

    Attributes:
        heartbeat_timeout: seconds of steady time without a heartbeat of policy_node, after which the gate closes.
        lockstep: None on a real robot.
        controller_timeout: seconds without a command, after which the robot's own controller stops it; 0: it does
            not, and goes on to its last command if command_node dies.
    """

    file: Path = field(compare=False)
    observation: Observation
    action: Action
    heartbeat_timeout: float
    lockstep: Lockstep | None
    controller_timeout: float = 0.0

    def manifest(self) -> dict[str, str]:
        """Return what gives the numbers in an execution state their meaning: names, fields, units, slice.

        Another topic, age or limit does not make a capsule another one.
        """
        observed, action = self.observation, self.action
        images = {image.key: (image.encoding, image.depth_range) for image in observed.images}
        state = {
            name: (source.type, source.field, joint, conversion)
            for source in observed.state
            for name, joint, conversion in zip(source.names, source.joints, source.conversions, strict=True)
        }
        actions = dict(zip(action.joints, action.conversions, strict=True))
        return {
            "images": _digest(images),
            "state": _digest(state),
            "actions": _digest((actions, action.mode, action.outputs, *_interface(action))),
        }


def _interface(action: Action) -> list[str]:
    return [] if action.interface == "position" else [action.interface]


def _digest(said: object) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=asdict).encode()).hexdigest()


def load_contract(path: str | Path) -> Contract:
    """Read and check a contract. Raises BAD_CONTRACT with file, line, key, value and what to do."""
    root = read_yaml(path)
    observation = read_observation(root.take("observation").as_section())
    action = read_action(root.take("action").as_section(), observation)
    timeout = root.take_if_given("controller_timeout")
    contract = Contract(
        file=root.file,
        observation=observation,
        action=action,
        heartbeat_timeout=root.take("heartbeat_timeout").as_number(above=0.0),
        lockstep=_lockstep(root.take_if_given("lockstep"), observation, action),
        controller_timeout=timeout.as_number(least=0.0) if timeout else 0.0,
    )
    root.end()
    return contract


def _lockstep(value: Value | None, observation: Observation, action: Action) -> Lockstep | None:
    if value is None:
        return None
    command, *others = action.commands
    if others:
        value.refuse("the robot waits for one command of each tick; give one action.command for all joints")
    if command.type not in STAMPED_COMMAND_TYPES:
        value.refuse(f"needs commands with a stamp, and {command.type} has none; use {STAMPED_COMMAND_TYPES[0]}")
    if command.interface != "position":
        value.refuse("the robot moves to the targets of each tick; use action.command.interface: position")
    if command.handover != "point":
        value.refuse("the robot waits for the command of each tick; use action.command.handover: point")
    if any(group.action == "release" for group in action.safety):
        value.refuse("the robot waits for the command of each tick, and a released joint gets none; use hold")
    if action.limits.acceleration is not None:
        value.refuse("time stands still behind a hold, so that it is one command; take limits.acceleration out")
    if action.strategy == "sync":
        value.refuse(f"has its own fixed delay, apply_after; take action.strategy {action.strategy} out")
    for source in observation.sources:
        if source.stamp != "header" or source.align != "hold":
            value.refuse(
                f"an observation is what is stamped with a tick's time, and {source.topic} is taken by stamp "
                f"{source.stamp} and align {source.align}; use header and hold"
            )
    section = value.as_section()
    lockstep = Lockstep(section.take("apply_after").as_count(least=1))
    section.end()
    return lockstep
