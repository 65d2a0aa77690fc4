# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Where a new process goes on: the newest boundary that is safe on the disk, and the shortest way to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flashrt_ros.policy.capsule_file import read_capsule
from flashrt_ros.policy.capsule_info import FORMAT, CapsuleInfo, input_digests, path_of
from flashrt_ros.policy.folder_index import FolderIndex
from flashrt_ros.policy.recipe_log import Recorded, read_log
from flashrt_ros.policy.tensor_file import open_checked
from flashrt_ros.runtime.buffers import BufferSet
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import FlashrtError
from flashrt_ros.runtime.manifest import Manifest
from flashrt_ros.runtime.recipe import Event, Executed


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """A boundary, and how to build it.

    Attributes:
        boundary: its id; empty: there is none.
        capsule: the bytes to begin with; None: from the first event.
        events: the inputs to apply behind it.
        skipped: why damaged files, or a log made elsewhere, were passed over.
    """

    boundary: str
    capsule: Capsule | None
    events: tuple[Event, ...]
    skipped: tuple[FlashrtError, ...]


def find_resume_point(index: FolderIndex, buffers: BufferSet, manifest: Manifest) -> ResumePoint:
    """The head of the recipe log, from the nearest capsule before it on; without a log, the newest capsule."""
    return _Search(index, buffers, manifest).find()


class _Search:
    def __init__(self, index: FolderIndex, buffers: BufferSet, manifest: Manifest) -> None:
        self._index, self._buffers, self._manifest = index, buffers, manifest
        self._skipped = [*index.unreadable.values()]

    def find(self) -> ResumePoint:
        recorded = self._recorded()
        if recorded is None:
            return self._newest_capsule()
        capsule, done = self._nearest(recorded)
        return ResumePoint(recorded.boundary, capsule, recorded.events[done:], tuple(self._skipped))

    def _recorded(self) -> Recorded | None:
        try:
            return read_log(self._index.folder, self._manifest)
        except FlashrtError as error:
            self._skipped.append(error)
            return None

    def _newest_capsule(self) -> ResumePoint:
        for kept in self._index.newest_first():
            capsule = self._read(kept.info) if kept.info.manifest == self._manifest else None
            if capsule is not None:
                return ResumePoint(capsule.boundary.id, capsule, (), tuple(self._skipped))
        return ResumePoint("", None, (), tuple(self._skipped))

    def _nearest(self, recorded: Recorded) -> tuple[Capsule | None, int]:
        """The capsule that holds most of a head's inputs, and their number."""
        found = []
        for kept in self._index.newest_first():
            if kept.info.boundary in recorded.boundaries and kept.info.manifest == self._manifest:
                done = self._inputs_held(path_of(self._index.folder, kept.info.name), recorded)
                found.append((done, kept.info))
        for done, info in sorted(found, key=lambda held: -held[0]):
            capsule = self._read(info) if done else None
            if capsule is not None:
                return capsule, done
        return None, 0

    def _inputs_held(self, path: Path, recorded: Recorded) -> int:
        """How many of a head's inputs a capsule holds; 0: it also holds others."""
        try:
            with open_checked(path, FORMAT) as file:
                digests, events = input_digests(file), file.document["recipe"]
        except FlashrtError as error:
            self._skipped.append(error)
            return 0
        if _begins_with(recorded.digests, digests):
            return len(digests)
        # How far a chunk was executed is told again and again; the last word replaces the others.
        last = recorded.events[len(digests) - 1] if len(digests) <= len(recorded.events) else None
        told_again = isinstance(last, Executed) and events[-1].get("act_index") == last.act_index
        return len(digests) - 1 if told_again and _begins_with(recorded.digests, digests[:-1]) else 0

    def _read(self, info: CapsuleInfo) -> Capsule | None:
        try:
            capsule = read_capsule(path_of(self._index.folder, info.name), self._buffers, self._manifest)
        except FlashrtError as error:
            self._skipped.append(error)
            return None
        self._index.use(info.name)
        return capsule


def _begins_with(whole: Sequence[str], part: Sequence[str]) -> bool:
    return list(whole[: len(part)]) == list(part)
