# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""policy_node in a process of its own."""

from __future__ import annotations

from pathlib import Path

from node_process import NodeProcess, settings


class Process(NodeProcess):
    """A policy_node."""

    def __init__(self, log: Path, code: str = "", **parameters: object) -> None:
        """`code` runs instead of the module; it is to call its `main`."""
        start = ["-m", "flashrt_ros.node.policy_node"] if not code else ["-c", code]
        super().__init__(log, *start, "--ros-args", *settings(parameters))
