# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The inputs of the live episode on the disk, as they come, so that another process can go on where this one ends.

The log is a row of tensor files one behind the other, each with its own checksums. The first says for which manifest
it holds. An input names its parent, the number of an earlier record: after a rollback the inputs branch off where it
went. Behind the inputs of a boundary comes a record that makes it the head. What is not whole at the end was being
written when the process ended, and counts as not there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from flashrt_ros.policy.capsule_file import array_tensor, decoded_recipe, recipe_targets
from flashrt_ros.policy.capsule_info import input_digests
from flashrt_ros.policy.tensor_file import (
    Header,
    Tensor,
    damaged,
    digests_of,
    read_header,
    storage,
    sync_folder,
)
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary
from flashrt_ros.runtime.manifest import Manifest, differences
from flashrt_ros.runtime.recipe import Event, Recipe, encode

FORMAT = "flashrt_recipe_log"
SCHEMA = 1
LOG, ASIDE = ".recipe", ".recipe.aside"
NO_PARENT = -1

Record = tuple[dict[str, Any], int]
"""The document of a record and its place in the file."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The newest head of a log.

    Attributes:
        boundary: its id.
        events: all inputs behind it, the root first.
        digests: of each of them, as `input_digests`.
        boundaries: ids of the heads before it.
        lost_bytes: at the end of the log, that were not whole.
    """

    boundary: str
    events: tuple[Event, ...]
    digests: tuple[str, ...]
    boundaries: frozenset[str]
    lost_bytes: int


class RecipeLog:
    """Appends to the log of a folder. One thread uses it."""

    def __init__(self, folder: Path, manifest: Manifest, limit_bytes: int) -> None:
        """The log of an earlier process stays until the first `follow`; `limit_bytes` bounds the file."""
        self._path, self._aside = folder / LOG, folder / ASIDE
        self._manifest = manifest
        self._limit = limit_bytes
        self._size = 0
        self._count = 0
        self._given_up = False
        self._line: list[tuple[Recipe, int]] = []
        """The recipe of the head, from the root on, and the numbers of its records."""

    def follow(self, boundary: Boundary) -> None:
        """Make a boundary the head of the log; durable on return.

        The log is begun anew, with the inputs of this boundary alone, where it would grow beyond its limit.

        Raises:
            FlashrtError: STORAGE, the disk refuses; OVER_BUDGET, the inputs of this one boundary take more than half of
                the limit. The log is given up then: `remove_given_up` it before a newer capsule is written.
        """
        try:
            if not self._line or not self._append(self._path, boundary, self._limit):
                self._begin(boundary)
        except OSError as error:
            self._give_up()
            raise storage(self._path, error) from error

    def remove_given_up(self) -> None:
        """Remove a log that `follow` gave up and could not remove; STORAGE while the disk still refuses.

        Call it before each write of a capsule: beside a newer capsule, the old log would lead to an older boundary.
        """
        if not self._given_up:
            return
        try:
            for path in (self._path, self._aside):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise storage(self._path, error) from error
        self._given_up = False

    def _begin(self, boundary: Boundary) -> None:
        self._size = self._count = 0
        self._line = []
        self._aside.unlink(missing_ok=True)
        # With half of the room, one that was begun anew has not to be soon again.
        if not self._append(self._aside, boundary, self._limit // 2):
            self._give_up()
            raise FlashrtError(
                ErrorCode.OVER_BUDGET,
                f"{self._path}: the inputs of boundary {boundary.id} take more than half of {self._limit} bytes; raise "
                "the limit of the recipe log",
            )
        os.rename(self._aside, self._path)
        self._given_up = False
        sync_folder(self._path.parent)

    def _append(self, path: Path, boundary: Boundary, room: int) -> bool:
        """Write what is not there of a boundary's recipe, and the new head. False: there is no room for it."""
        known = {id(node): depth for depth, (node, _) in enumerate(self._line)}
        fresh: list[Recipe] = []
        node: Recipe | None = boundary.recipe
        while node is not None and id(node) not in known:
            fresh.append(node)
            node = node.parent
        line = self._line[: known[id(node)] + 1] if node is not None else []
        records = [] if self._count else [_record({"schema": SCHEMA, "manifest": self._manifest}, ())]
        count = self._count + len(records)
        for node in reversed(fresh):
            parent = line[-1][1] if line else NO_PARENT
            records.append(_input(parent, node.event))
            line.append((node, count))
            count += 1
        records.append(_record({"head": line[-1][1], "boundary": boundary.id}, ()))
        nbytes = sum(len(part) for record in records for part in record)
        if self._size + nbytes > room:
            return False
        _write(path, self._size, [part for record in records for part in record])
        self._size, self._count, self._line = self._size + nbytes, count + 1, line
        return True

    def _give_up(self) -> None:
        self._line, self._given_up = [], True
        # What made it give up is told; that the log is still there matters to the next capsule, which tries again.
        with suppress(FlashrtError):
            self.remove_given_up()


def read_log(folder: Path, manifest: Manifest) -> Recorded | None:
    """Read the newest head of a folder's log; None: there is no log, or no head in it yet.

    Raises:
        FlashrtError: STORAGE; MANIFEST_MISMATCH, it is of another policy or device; NOT_SUPPORTED, another schema;
            DAMAGED, its beginning or an input of the newest head is not what was written.
    """
    path = folder / LOG
    try:
        with path.open("rb") as file:
            return _Reader(path, file, manifest).newest()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage(path, error) from error


class _Reader:
    """One pass over a log."""

    def __init__(self, path: Path, file: BufferedReader, manifest: Manifest) -> None:
        self._path, self._file = path, file
        self._size = os.fstat(file.fileno()).st_size
        first, self._end = read_header(path, file, 0, self._size, FORMAT)
        schema, theirs = first.document.get("schema"), first.document.get("manifest")
        if schema != SCHEMA or not isinstance(theirs, dict):
            raise FlashrtError(ErrorCode.NOT_SUPPORTED, f"{path}: schema {schema}, this version reads schema {SCHEMA}")
        differing = differences(manifest, theirs)
        if differing:
            raise FlashrtError(ErrorCode.MANIFEST_MISMATCH, f"{path}: made elsewhere: {'; '.join(differing[:6])}")

    def newest(self) -> Recorded | None:
        records = self._records()
        heads = [number for number, (document, _) in enumerate(records) if "head" in document]
        try:
            boundaries = [records[number][0]["boundary"] for number in heads]
            while heads:
                try:
                    events, digests = self._inputs(records, records[heads[-1]][0]["head"])
                except FlashrtError:
                    # A disk that lost its power may have kept a later record and not an earlier one.
                    self._end = records[heads.pop()][1]
                    continue
                lost = self._size - self._end
                return Recorded(boundaries[len(heads) - 1], events, digests, frozenset(boundaries[: len(heads)]), lost)
        except (KeyError, TypeError, IndexError) as error:
            raise damaged(self._path, f"no readable record ({type(error).__name__}: {error})") from error
        return None

    def _inputs(self, records: list[Record], number: int) -> tuple[tuple[Event, ...], tuple[str, ...]]:
        """The events up to a record, and their digests; DAMAGED."""
        line: list[int] = []
        while number != NO_PARENT:
            line.append(number)
            number = records[number][0]["parent"]
        inputs = [self._input(records[number][1]) for number in reversed(line)]
        return tuple(event for event, _ in inputs), tuple(digest for _, digest in inputs)

    def _records(self) -> list[Record]:
        """All records up to the last one that is whole."""
        records: list[Record] = [({}, 0)]
        while self._end < self._size:
            begin = self._end
            try:
                record, end = read_header(self._path, self._file, begin, self._size, FORMAT)
            except FlashrtError:
                break
            records.append((record.document, begin))
            self._end = end
        return records

    def _input(self, begin: int) -> tuple[Event, str]:
        record, _ = read_header(self._path, self._file, begin, self._size, FORMAT)
        targets, arrays = recipe_targets(record)
        record.read(targets)
        return decoded_recipe(record, arrays).event, input_digests(record)[0]


def _input(parent: int, event: Event) -> list[bytes | memoryview]:
    events, arrays = encode(Recipe(None, event))
    return _record({"parent": parent, "recipe": events}, [array_tensor(name, array) for name, array in arrays.items()])


def _record(document: dict[str, Any], tensors: Sequence[Tensor]) -> list[bytes | memoryview]:
    header = Header(FORMAT, document, tensors).encoded(digests_of(tensors))
    return [header, *(tensor.data for tensor in tensors)]


def _write(path: Path, offset: int, parts: Sequence[bytes | memoryview]) -> None:
    """Write at `offset` of a file, which is made for its first part, and wait until the disk has it."""
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | (0 if offset else os.O_CREAT | os.O_EXCL)
    with open(os.open(path, flags, 0o644), "wb") as file:
        file.seek(offset)
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
