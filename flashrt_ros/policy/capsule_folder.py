# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A folder of capsule files within a size limit, owned by one process at a time."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flashrt_ros.policy.capsule_file import encode_capsule, name_of, path_of, read_capsule, read_info
from flashrt_ros.policy.tensor_file import commit, storage, sync_folder, write_aside
from flashrt_ros.runtime.buffers import BufferSet
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.manifest import Manifest

LOCK = ".lock"
ASIDE = ".aside"
"""No capsule's name begins with a dot, so that these never meet one's file."""


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest capsule that fits, if any, and why others were passed over."""

    capsule: Capsule | None
    skipped: tuple[FlashrtError, ...]


@dataclass(frozen=True, slots=True)
class _Kept:
    created: int
    nbytes: int


class CapsuleFolder:
    """Writes, finds and removes capsule files; one thread at a time may change it."""

    def __init__(self, folder: Path, size_limit: int) -> None:
        """Make the folder if need be, lock it and clear what an interrupted write left.

        Raises:
            FlashrtError: STORAGE if it cannot be used, or another process uses it.
        """
        self.folder = folder
        self.size_limit = size_limit
        self._aside = folder / ASIDE
        self._kept: dict[str, _Kept] = {}
        self._unreadable: dict[str, FlashrtError] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise storage(folder, error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._aside.unlink(missing_ok=True)
            self._scan()
        except OSError as error:
            os.close(self._lock)
            if isinstance(error, BlockingIOError):
                problem = f"{folder}: another process keeps its capsules there; give each its own folder"
                raise FlashrtError(ErrorCode.STORAGE, problem) from error
            raise storage(folder, error) from error

    def close(self) -> None:
        """Let another process have the folder."""
        os.close(self._lock)

    def __contains__(self, name: str) -> bool:
        """Whether a readable file of that name is there; any thread may ask."""
        return name in self._kept

    def write(self, capsule: Capsule, buffers: BufferSet, is_pinned: Callable[[str], bool]) -> Path:
        """Save a capsule; on return it is safe on the disk, in the place of an older one of its name.

        Only then the oldest that are not pinned are removed until the folder is within its limit, which it exceeds
        until then by one capsule.

        Raises:
            FlashrtError: OVER_BUDGET if what is pinned or unreadable leaves too little room, STORAGE if the disk
                refuses; an older capsule of that name stands then.
        """
        path = path_of(self.folder, capsule.name)
        # A robot's clock may start in the past; the order of the files must not.
        created = max(time.time_ns(), 1 + max((kept.created for kept in self._kept.values()), default=0))
        encoded = encode_capsule(capsule, buffers, created)
        victims = self._victims(capsule.name, encoded.nbytes, is_pinned)
        try:
            self._aside.unlink(missing_ok=True)
            write_aside(self._aside, encoded.header, encoded.tensors)
            commit(self._aside, path)
        except OSError as error:
            raise storage(path, error) from error
        self._unreadable.pop(capsule.name, None)
        self._kept[capsule.name] = _Kept(created, encoded.nbytes)
        for name in victims:
            self.remove(name)
        return path

    def remove(self, name: str) -> None:
        """Delete a capsule's file for good; UNKNOWN_CAPSULE if there is none, STORAGE if the disk refuses."""
        path = path_of(self.folder, name)
        try:
            path.unlink()
            sync_folder(self.folder)
        except FileNotFoundError as error:
            raise FlashrtError(ErrorCode.UNKNOWN_CAPSULE, f"{path}: there is no such file") from error
        except OSError as error:
            raise storage(path, error) from error
        self._kept.pop(name, None)
        self._unreadable.pop(name, None)

    def read(self, name: str, buffers: BufferSet, manifest: Manifest, foreign: bool = False) -> Capsule:
        """Read a capsule of the folder; as `read_capsule`."""
        return read_capsule(path_of(self.folder, name), buffers, manifest, foreign)

    def newest(self, buffers: BufferSet, manifest: Manifest) -> Newest:
        """The newest capsule that is whole and fits `manifest`."""
        skipped = [*self._unreadable.values()]
        for name in sorted(self._kept, key=lambda name: -self._kept[name].created):
            try:
                return Newest(self.read(name, buffers, manifest), tuple(skipped))
            except FlashrtError as error:
                skipped.append(error)
        return Newest(None, tuple(skipped))

    def _scan(self) -> None:
        for path in sorted(self.folder.iterdir()):
            name = name_of(path)
            if name is None:
                continue
            try:
                self._kept[name] = _Kept(read_info(path).created, path.lstat().st_size)
            except FlashrtError as error:
                self._unreadable[name] = error

    def _victims(self, name: str, nbytes: int, is_pinned: Callable[[str], bool]) -> list[str]:
        """The oldest unpinned capsules that must go; an unreadable file counts, but is nobody's to delete."""
        others = {other: kept for other, kept in self._kept.items() if other != name}
        unreadable = sum(self._size(other) for other in self._unreadable if other != name)
        excess = nbytes + unreadable + sum(kept.nbytes for kept in others.values()) - self.size_limit
        victims = []
        for other in sorted(others, key=lambda other: others[other].created):
            if excess <= 0:
                break
            if not is_pinned(other):
                victims.append(other)
                excess -= others[other].nbytes
        if excess > 0:
            raise FlashrtError(
                ErrorCode.OVER_BUDGET,
                f"{self.folder}: capsule {name} asks for {nbytes} bytes, {excess} more than can be made free of "
                f"{self.size_limit}; {unreadable} are in unreadable files and the rest is pinned. "
                "Unpin or delete some, or raise the limit",
            )
        return victims

    def _size(self, name: str) -> int:
        try:
            return path_of(self.folder, name).lstat().st_size
        except FileNotFoundError:
            return 0
