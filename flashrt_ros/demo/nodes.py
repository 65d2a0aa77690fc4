# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The command lines of the processes that the demo starts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from flashrt_ros.tools.config_file import config_file

_HEARTBEAT_TIMEOUT = 3.0
"""Seconds. Nothing here can be hurt, and the machine may be busy: in lockstep the arm waits for the policy anyway."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What the nodes run with.

    Attributes:
        folder: gets contract, capsules and logs.
        checkpoint: the policy.
        seed: of the world.
        renderer: see flashrt_ros.demo.render.
        pacing: simulated seconds a second at most; 0: as fast as it can be computed.
        record: keep everything, so that a recording can be written.
    """

    folder: Path
    checkpoint: Path
    seed: int = 0
    renderer: str = "auto"
    pacing: float = 0.0
    record: bool = False


def contract_file() -> Path:
    """Return the demo's contract."""
    return config_file("demo_contract.yaml")


def checkpoint_command(checkpoint: Path, seed: int) -> list[str]:
    """Return what writes a tiny policy with random weights."""
    return [sys.executable, "-m", "flashrt_ros.tools.tiny_checkpoint", str(checkpoint), "--seed", str(seed)]


def node_commands(setting: Setting) -> dict[str, list[str]]:
    """Write the contract into the folder, and return the command of each node."""
    contract = _write_contract(setting.folder / "contract.yaml")
    recorder = {"recorder.seconds": 3600.0, "recorder.memory": 1024} if setting.record else {}
    policy = {"checkpoint": setting.checkpoint, "capsule_folder": setting.folder / "capsules"}
    robot = {"seed": setting.seed, "renderer": setting.renderer, "pacing": setting.pacing}
    shared = {"autostart": "true", "use_sim_time": "true", "world": "simulated", "contract": contract}
    return {
        "robot": node_command("demo.robot_node", robot),
        "command": node_command("node.command_node", shared),
        "policy": node_command("node.policy_node", {**shared, **recorder, **policy}),
    }


def _write_contract(path: Path) -> Path:
    """Write the demo's contract, but for more patience."""
    contract: dict[str, Any] = yaml.safe_load(contract_file().read_text())
    contract["heartbeat_timeout"] = _HEARTBEAT_TIMEOUT
    path.write_text(yaml.safe_dump(contract))
    return path


def node_command(module: str, parameters: Mapping[str, object]) -> list[str]:
    """Return the command of a node of this package, by its module below `flashrt_ros`."""
    settings = [word for name, value in parameters.items() for word in ("-p", f"{name}:={value}")]
    return [sys.executable, "-m", f"flashrt_ros.{module}", "--ros-args", *settings]
