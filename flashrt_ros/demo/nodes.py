# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The command lines of the processes that the demo starts."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path


def contract_file() -> Path:
    """Return the demo's contract, in the checkout or where it was installed.

    Raises:
        FileNotFoundError: it is nowhere.
    """
    prefixes = [*os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep), sys.prefix]
    shares = [Path(__file__).parents[2], *(Path(prefix) / "share" / "flashrt_ros" for prefix in prefixes if prefix)]
    for share in shares:
        path = share / "config" / "demo_contract.yaml"
        if path.is_file():
            return path
    raise FileNotFoundError(f"config/demo_contract.yaml is in none of {', '.join(map(str, shares))}")


def checkpoint_command(checkpoint: Path, seed: int) -> list[str]:
    """Return what writes the tiny policy."""
    return [sys.executable, "-m", "flashrt_ros.tools.tiny_checkpoint", str(checkpoint), "--seed", str(seed)]


def node_commands(options: Namespace, checkpoint: Path, capsules: Path) -> dict[str, list[str]]:
    """Return the command of each node."""
    recorder = {"recorder.seconds": 3600.0, "recorder.memory": 1024} if options.record else {}
    shared = {"autostart": "true", "use_sim_time": "true", "world": "simulated", "contract": str(contract_file())}
    return {
        "robot": _node(
            "demo.robot_node",
            {"seed": options.seed, "renderer": options.renderer, "pacing": 1.0 if options.realtime else 0.0},
        ),
        "command": _node("node.command_node", shared),
        "policy": _node(
            "node.policy_node", {**shared, **recorder, "checkpoint": checkpoint, "capsule_folder": capsules}
        ),
    }


def _node(module: str, parameters: Mapping[str, object]) -> list[str]:
    settings = [word for name, value in parameters.items() for word in ("-p", f"{name}:={value}")]
    return [sys.executable, "-m", f"flashrt_ros.{module}", "--ros-args", *settings]
