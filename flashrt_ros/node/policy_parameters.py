# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The parameters of policy_node, and what they say when it is configured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rclpy.node import Node

from flashrt_ros.node.parameters import Parameter
from flashrt_ros.node.recorder import RecorderSettings
from flashrt_ros.policy.folder_index import default_folder
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

_MIB = 1 << 20

PARAMETERS = (
    Parameter("checkpoint", "", "Folder of the policy's checkpoint; read by configure.", read_only=False),
    Parameter("contract", "", "Path of the contract file; read by configure.", read_only=False),
    Parameter("device", "auto", "Where the policy is computed.", choices=("auto", "cpu", "cuda")),
    Parameter(
        "precision",
        "auto",
        "What the policy computes in; auto: float32 on a CPU, bfloat16 on a GPU.",
        choices=("auto", "float32", "bfloat16"),
    ),
    Parameter(
        "weights",
        "auto",
        "fp8: those of the action expert of pi0 and pi0.5 take one byte each; auto: as precision says.",
        choices=("auto", "fp8"),
    ),
    Parameter("threads", 1, "CPU threads of the computation; part of what makes results equal.", low=1, high=256),
    Parameter("world", "real", "simulated allows EXACT restores.", choices=("real", "simulated")),
    Parameter("capsule_budget", 1024, "Memory for capsules, MiB.", low=1, high=1 << 20),
    Parameter("journal_budget", 256, "Memory for the boundaries that rollback reaches, MiB.", low=1, high=1 << 20),
    Parameter("capsule_folder", "", "Folder of capsule files; empty: flashrt/<name of the node> below ~/.ros."),
    Parameter("capsule_folder_limit", 4096, "Size of all capsule files together, MiB.", low=1, high=1 << 24),
    Parameter("recipe_log_limit", 256, "Size of the log of inputs beside the capsule files, MiB.", low=1, high=1 << 20),
    Parameter("restore_on_start", True, "Configure goes on at the newest boundary that is safe in the folder."),
    Parameter("gate_timeout", 1.0, "Seconds that command_node may take to confirm a closed gate.", low=0.05, high=60.0),
    Parameter(
        "observation_timeout",
        5.0,
        "Seconds without an observation that end a goal; also to open the gate.",
        low=0.1,
        high=3600.0,
    ),
    Parameter("stage_deadline", 10.0, "Seconds after which a stage on the device counts as hung.", low=0.1, high=600.0),
    Parameter("heartbeat_rate", 10.0, "Heartbeats a second.", low=1.0, high=100.0),
    Parameter("recorder.seconds", 30.0, "Seconds that the flight recorder keeps at least; 0: none.", 0.0, 3600.0),
    Parameter("recorder.memory", 256, "Memory for the messages that it keeps, MiB.", low=1, high=1 << 20),
    Parameter("recorder.folder", "", "Folder of incidents; empty: beside capsule_folder, with .incidents behind it."),
    Parameter("recorder.folder_limit", 2048, "Size of all incidents together, MiB; the newest stays.", 1, 1 << 24),
    Parameter(
        "rate_limit", 100.0, "Calls a second of each verb that copies, computes or writes; more are BUSY.", 0.1, 1e4
    ),
    Parameter("sample_limit", 16, "Chunks that one call of ~/sample_actions may ask for.", low=1, high=256),
    Parameter("remembered_requests", 256, "Answered requests whose id is remembered.", low=1, high=1 << 16),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What configure works from; budgets and limits in bytes."""

    checkpoint: Path
    contract: Path
    device: str
    precision: str
    weights: str
    threads: int
    capsule_budget: int
    journal_budget: int
    folder: Path
    folder_limit: int
    log_limit: int
    restore_on_start: bool


def read_settings(node: Node) -> Settings:
    """Read the parameters; BAD_CHECKPOINT or BAD_CONTRACT where a path is not given."""

    def value(name: str) -> object:
        return node.get_parameter(name).value

    for name, code in (("checkpoint", ErrorCode.BAD_CHECKPOINT), ("contract", ErrorCode.BAD_CONTRACT)):
        if not value(name):
            raise FlashrtError(code, f"the parameter '{name}' is empty; set it to a path")
    return Settings(
        checkpoint=Path(str(value("checkpoint"))),
        contract=Path(str(value("contract"))),
        device=str(value("device")),
        precision=str(value("precision")),
        weights=str(value("weights")),
        threads=node.get_parameter("threads").value,
        capsule_budget=node.get_parameter("capsule_budget").value * _MIB,
        journal_budget=node.get_parameter("journal_budget").value * _MIB,
        folder=capsule_folder(node),
        folder_limit=node.get_parameter("capsule_folder_limit").value * _MIB,
        log_limit=node.get_parameter("recipe_log_limit").value * _MIB,
        restore_on_start=node.get_parameter("restore_on_start").value,
    )


def recorder_settings(node: Node) -> RecorderSettings:
    """Bounds and place of the flight recorder."""
    capsules, given = capsule_folder(node), node.get_parameter("recorder.folder").value
    return RecorderSettings(
        seconds=node.get_parameter("recorder.seconds").value,
        memory=node.get_parameter("recorder.memory").value * _MIB,
        folder=Path(given) if given else capsules.with_name(f"{capsules.name}.incidents"),
        limit=node.get_parameter("recorder.folder_limit").value * _MIB,
    )


def capsule_folder(node: Node) -> Path:
    """Where the node keeps its capsule files."""
    given = node.get_parameter("capsule_folder").value
    return Path(given) if given else default_folder(node.get_fully_qualified_name())
