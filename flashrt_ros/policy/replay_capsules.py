# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which capsule a record means, and the ways back to a boundary whose capsule is not there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from flashrt_ros.policy.capsule_file import read_capsule
from flashrt_ros.policy.capsule_info import name_of, read_info
from flashrt_ros.policy.names import is_name
from flashrt_ros.policy.replay_record import Record
from flashrt_ros.policy.session import EPISODE_START, Mode, Session, VerbReport
from flashrt_ros.runtime.backend import Saved
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary, Rows
from flashrt_ros.runtime.recipe import Act, Instruct, Observe, Recipe, Remember, Root, Say

_MAKE_BOUNDARIES = (Instruct, Observe, Remember, Act, Say)
"""Events that commit a boundary of their own; the others amend the one before."""


class Capsules:
    """Capsule files of some folders, by name and by boundary."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Look at their headers; a damaged file is passed over and named in `troubles`."""
        self.troubles: list[str] = []
        self._files: list[tuple[str, str, Path]] = []
        for folder in folders:
            for path in sorted(folder.iterdir()) if folder.is_dir() else []:
                if name_of(path) is None:
                    continue
                try:
                    info = read_info(path)
                except FlashrtError as error:
                    self.troubles.append(str(error))
                    continue
                self._files.append((info.name, info.boundary, path))

    def find(self, name: str, boundary: str) -> Path:
        """The file of that capsule, or of another one of the same boundary.

        Raises:
            FlashrtError: UNKNOWN_CAPSULE.
        """
        for wanted in ((name, boundary), ("", boundary)):
            for held, at, path in self._files:
                if at == wanted[1] and wanted[0] in ("", held):
                    return path
        raise FlashrtError(
            ErrorCode.UNKNOWN_CAPSULE,
            f"no file of capsule {name or 'any name'} at boundary {boundary} is among the {len(self._files)} that are "
            "there; give its folder (--capsules)",
        )


class Held:
    """The capsules of a replay: those that the log makes, under names of their own, and those on the disk."""

    def __init__(self, session: Session, capsules: Capsules, as_recorded: bool) -> None:
        """`as_recorded`: a capsule must be of the very boundary that the log says; another instruction has others."""
        self._as_recorded = as_recorded
        self._session = session
        self._capsules = capsules
        self._wanted: set[tuple[str, str]] = set()
        self._names: dict[str, str] = {}
        self._boundaries: dict[str, str] = {}
        self._count = 0

    def expect(self, records: Sequence[Record]) -> None:
        """Look which capsules the log comes back to; the others need no copy."""
        self._wanted |= {(r.capsule, r.boundary) for r in records if r.verb == "restore" and not r.error_code}

    def note(self, record: Record) -> None:
        """Remember which boundary and which kept start here are the recorded ones."""
        head = self._session.head
        if head is not None and record.verb != "snapshot":
            self._boundaries[record.boundary] = head.id
        if record.verb == "begin":
            self._names[record.capsule] = self._session.find(EPISODE_START).name

    def snapshot(self, record: Record) -> None:
        """Take the capsule that the log takes, if the log comes back to it."""
        if (record.capsule, record.boundary) in self._wanted:
            self._names[record.capsule] = self._new_name()
            self._session.snapshot(self._names[record.capsule])

    def restore(self, record: Record) -> str:
        """Restore what the log restores; returns what is worth knowing of it."""
        store, boundary = self._session.store, self._boundaries.get(record.boundary)
        compacted = f"compacted.{self._boundaries.get(record.capsule.removeprefix('compacted.'))}"
        for name in (self._names.get(record.capsule, ""), compacted):
            held = store.get(name) if is_name(name) and name in store else None
            if held is not None and (held.boundary.id == boundary or not self._as_recorded):
                self._session.restore(name, Mode(record.mode))
                return ""
        return self.take_up(record.capsule, record.boundary, Mode(record.mode))

    def take_up(self, name: str, boundary: str, mode: Mode) -> str:
        """Restore a capsule from the disk; from its recipe where its bytes do not fit here, which is noted."""
        policy, path = self._session.policy, self._capsules.find(name, boundary)
        capsule = read_capsule(path, policy.plan.buffers, policy.manifest(), foreign=True)
        report = self._restore(capsule, mode)
        self._boundaries[boundary] = report.boundary.id
        return report.note

    def rollback(self, record: Record) -> str:
        """Go back as the log did; where the lineage here is shorter, by the recipe of the head.

        It is shorter where the log was not followed from the start of the episode.
        """
        try:
            within = self._session.check_rollback(record.steps).id == self._boundaries.get(record.boundary)
        except FlashrtError:
            within = False
        if within:
            self._session.rollback(record.steps, Mode(record.mode))
            return ""
        recipe = self._recipe_before(record.steps)
        if recipe is None:
            return self.take_up("", record.boundary, Mode(record.mode))
        boundary = Boundary(record.boundary, "act", "", Rows(), recipe, "", 0, ())
        self._restore(Capsule("", "", "", boundary, {}, Saved((), ()), Saved((), ())), Mode(record.mode))
        return f"rebuilt from {len(recipe.events())} inputs, since the replay began behind it"

    def _restore(self, capsule: Capsule, mode: Mode) -> VerbReport:
        held = replace(capsule, name=self._new_name())
        self._session.store.add(held)
        return self._session.restore(held.name, mode, rebuild=True)

    def _recipe_before(self, steps: int) -> Recipe | None:
        """The recipe of the boundary so many before the head; None where the head's does not reach so far."""
        head = self._session.head
        node = head.recipe if head is not None else None
        while node is not None and steps:
            steps -= isinstance(node.event, _MAKE_BOUNDARIES)
            node = node.parent
        return None if node is None or isinstance(node.event, Root) else node

    def _new_name(self) -> str:
        self._count += 1
        return f"replay.{self._count}"
