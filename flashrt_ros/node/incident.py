# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""An incident as a folder: what was recorded, from which state, with what, and one page that says so."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rosbags.rosbag2 import StoragePlugin, Writer

from flashrt_ros.node.recorder_ring import Window
from flashrt_ros.policy.capsule_folder import CapsuleFolder
from flashrt_ros.policy.replay_incident import BAG, CAPSULES, CONTRACT, FACTS, SCHEMA, SUMMARY
from flashrt_ros.policy.replay_record import Record, manifest_sha256
from flashrt_ros.policy.replay_types import typestore
from flashrt_ros.runtime.buffers import BufferSet
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.manifest import Manifest
from flashrt_ros.version import VERSION

_PREFIX = "incident_"
_ASIDE = ".aside_"
_NO_LIMIT = 1 << 62
_PACKAGES = ("torch", "numpy", "rosbags", "safetensors", "tokenizers")
_SHOWN_RECORDS = 15


@dataclass(frozen=True, slots=True)
class Situation:
    """What an incident says of the node besides what was recorded.

    Attributes:
        contract: the file's text.
        buffers: of the policy whose capsules are recorded.
        policy_state: says whether it runs, or why it is held.
    """

    node: str
    checkpoint: str
    contract: str
    parameters: Mapping[str, Any]
    manifest: Manifest
    buffers: BufferSet
    policy_state: Callable[[], str]


class IncidentFolder:
    """Writes incidents below a folder and keeps the newest within a limit of bytes."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit

    def write(self, reason: str, window: Window, types: Mapping[str, str], situation: Situation) -> Path:
        """Write one aside, make it safe, give it its name; older ones go where the limit asks for it.

        Raises:
            FlashrtError: STORAGE, naming what the disk refused; nothing half is left under an incident's name.
        """
        aside = self._folder / f"{_ASIDE}{os.getpid()}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            self._fill(aside, reason, window, types, situation)
            target = self._free_name(reason)
            _sync(aside)
            aside.rename(target)
            _sync_one(self._folder)
            self._make_room(target)
        except OSError as error:
            shutil.rmtree(aside, ignore_errors=True)
            raise FlashrtError(ErrorCode.STORAGE, f"{self._folder}: no incident can be written: {error}") from error
        return target

    def _fill(self, folder: Path, reason: str, window: Window, types: Mapping[str, str], situation: Situation) -> None:
        _write_bag(folder / BAG, window, types)
        capsules = CapsuleFolder(folder / CAPSULES, _NO_LIMIT)
        try:
            for capsule in window.capsules:
                capsules.write(capsule, situation.buffers, lambda name: False)
        finally:
            capsules.close()
        (folder / CONTRACT).write_text(situation.contract)
        records = [item.record for item in window.items if item.record is not None]
        facts = _facts(reason, window, records, situation)
        (folder / FACTS).write_text(json.dumps(facts, indent=1, sort_keys=True))
        (folder / SUMMARY).write_text(_summary(facts, records, situation))

    def _free_name(self, reason: str) -> Path:
        words = "_".join(re.findall(r"[A-Za-z0-9]+", reason)[:6])[:60] or "asked_for"
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        names = [f"{_PREFIX}{stamp}_{words}", *(f"{_PREFIX}{stamp}_{words}_{n}" for n in range(2, 1000))]
        return next(self._folder / name for name in names if not (self._folder / name).exists())

    def _make_room(self, newest: Path) -> None:
        incidents = sorted(path for path in self._folder.iterdir() if path.name.startswith(_PREFIX) and path.is_dir())
        sizes = {path: sum(file.lstat().st_size for file in path.rglob("*")) for path in incidents}
        for path in sorted(incidents, key=lambda path: path.lstat().st_mtime_ns):
            if sum(sizes.values()) <= self._limit or path == newest:
                continue
            shutil.rmtree(path)
            del sizes[path]


def _write_bag(path: Path, window: Window, types: Mapping[str, str]) -> None:
    store = typestore()
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connections = {topic: writer.add_connection(topic, kind, typestore=store) for topic, kind in types.items()}
        for item in window.items:
            writer.write(connections[item.topic], item.time, item.raw)


def _facts(reason: str, window: Window, records: list[Record], situation: Situation) -> dict[str, Any]:
    start = records[0] if records else None
    return {
        "schema": SCHEMA,
        "reason": reason,
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "node": situation.node,
        "policy_state": situation.policy_state(),
        "checkpoint": situation.checkpoint,
        "manifest": situation.manifest,
        "manifest_sha256": manifest_sha256(situation.manifest),
        "parameters": dict(situation.parameters),
        "versions": _versions(),
        "start": {"verb": start.verb, "capsule": start.capsule, "boundary": start.boundary} if start else None,
        "capsules": [capsule.name for capsule in window.capsules],
        "messages": dict(Counter(item.topic for item in window.items)),
        "seconds": (window.items[-1].time - window.items[0].time) / 1e9 if window.items else 0.0,
    }


def _versions() -> dict[str, str]:
    found = {"flashrt_ros": VERSION, "python": platform.python_version(), "machine": platform.platform()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found | {"ros": os.environ.get("ROS_DISTRO", "from wheels")}


def _summary(facts: Mapping[str, Any], records: list[Record], situation: Situation) -> str:
    start = facts["start"]
    lines = [
        f"# Incident: {facts['reason']}",
        "",
        f"Written {facts['written']} by {facts['node']} (flashrt_ros {VERSION}).",
        f"The policy was {facts['policy_state']}.",
        f"The bag holds {facts['seconds']:.1f} s, from {start['verb']} at boundary {start['boundary']} on."
        if start
        else "No boundary was recorded.",
        "",
        "Replay it, where the checkpoint is:",
        "",
        f"    ros2 run flashrt_ros replay . --checkpoint {situation.checkpoint}",
        "",
        f"- `{BAG}/`: observations, chunks, commands, gate, diagnostics, and the log of boundaries",
        f"- `{CAPSULES}/`: {', '.join(facts['capsules']) or 'none'}",
        f"- `{CONTRACT}`, `{FACTS}`: the contract; manifest, parameters, versions",
        "",
        "| topic | messages |",
        "|---|---|",
        *(f"| {topic} | {count} |" for topic, count in sorted(facts["messages"].items())),
        "",
        "The last that was done to the execution state:",
        "",
        "| record | verb | boundary | what | ms | refused |",
        "|---|---|---|---|---|---|",
        *(_row(record) for record in records[-_SHOWN_RECORDS:]),
        "",
    ]
    return "\n".join(lines)


def _row(record: Record) -> str:
    what = record.capsule or record.instruction or (f"chunk {record.act_index}" if record.act_index else "")
    refused = ErrorCode(record.error_code).name if record.error_code else ""
    return f"| {record.sequence} | {record.verb} | {record.boundary} | {what} | {record.delay / 1e6:.1f} | {refused} |"


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        _sync_one(path)
    _sync_one(folder)


def _sync_one(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
