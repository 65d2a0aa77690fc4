# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The layout of an incident's folder, and reading what it says of itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.manifest import Manifest

SCHEMA = 1
BAG, CAPSULES = "bag", "capsules"
CONTRACT, FACTS, SUMMARY = "contract.yaml", "incident.json", "summary.md"


@dataclass(frozen=True, slots=True)
class Incident:
    """What of an incident a replay goes by; `precision` and `weights` are those that policy_node was asked for."""

    folder: Path
    reason: str
    manifest: Manifest
    precision: str
    weights: str

    @property
    def threads(self) -> int | None:
        """CPU threads that it was computed with; None: not on a CPU."""
        threads = self.manifest.get("numerics", {}).get("threads", "")
        return int(threads) if threads.isdigit() else None


def is_incident(path: Path) -> bool:
    """Whether this is an incident's folder."""
    return (path / FACTS).is_file()


def read_incident(folder: Path) -> Incident:
    """Read an incident's facts; DAMAGED where they are not what this version writes."""
    path = folder / FACTS
    try:
        facts = json.loads(path.read_text())
        schema, asked = facts["schema"], facts["parameters"]
        # A node that had not these parameters yet computed as "auto" does.
        precision, weights = (str(asked.get(name, "auto")) for name in ("precision", "weights"))
        incident = Incident(folder, str(facts["reason"]), facts["manifest"], precision, weights)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FlashrtError(ErrorCode.DAMAGED, f"{path} cannot be read: {error}") from error
    if schema != SCHEMA:
        raise FlashrtError(ErrorCode.DAMAGED, f"{path} is of schema {schema}; this version reads {SCHEMA}")
    return incident
