# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a folder of capsule files holds, and what of it may go. Imports no torch."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flashrt_ros.policy.capsule_info import CapsuleInfo, name_of, path_of, read_info
from flashrt_ros.policy.tensor_file import storage, sync_folder
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

LOCK = ".lock"
ASIDE = ".aside"
PINS = ".pins"
"""No capsule's name begins with a dot, so that these never meet one's file."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A readable file: its header, its size, and when it was last used (ns, from its modification time)."""

    info: CapsuleInfo
    nbytes: int
    used: int


class FolderIndex:
    """The files of a folder that one process owns.

    One thread at a time may change it, any thread may ask. A pin is an empty file of the capsule's name in `.pins`: it
    is there before its capsule and goes after it, so that a pinned capsule is at no time without.
    """

    def __init__(self, folder: Path, size_limit: int) -> None:
        """Make the folder if need be, lock it, look at its files and clear what an interrupted process left.

        Raises:
            FlashrtError: STORAGE if it cannot be used, or another process uses it.
        """
        self.folder = folder
        self.size_limit = size_limit
        self.unreadable: dict[str, FlashrtError] = {}
        self._guard = threading.Lock()
        self._kept: dict[str, Kept] = {}
        self._pins: set[str] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise storage(folder, error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (folder / ASIDE).unlink(missing_ok=True)
            kept, self.unreadable = scan(folder)
            self._kept = {each.info.name: each for each in kept}
            self._pins = self._living_pins()
        except BlockingIOError as error:
            os.close(self._lock)
            problem = f"{folder}: another process keeps its capsules there; end it, or use another folder"
            raise FlashrtError(ErrorCode.STORAGE, problem) from error
        except OSError as error:
            os.close(self._lock)
            raise storage(folder, error) from error

    def close(self) -> None:
        """Let another process have the folder."""
        os.close(self._lock)

    def __contains__(self, name: str) -> bool:
        return name in self._kept

    def newest_first(self) -> list[Kept]:
        """The readable files."""
        with self._guard:
            return sorted(self._kept.values(), key=lambda kept: -kept.info.created)

    def get(self, name: str) -> Kept | None:
        """The readable file of that capsule."""
        return self._kept.get(name)

    def is_pinned(self, name: str) -> bool:
        """Whether the capsule has a pin that survives a restart."""
        return name in self._pins

    @property
    def nbytes(self) -> int:
        """Bytes of all capsule files, unreadable ones counted."""
        with self._guard:
            return sum(kept.nbytes for kept in self._kept.values()) + sum(map(self._size, self.unreadable))

    def next_stamp(self) -> int:
        """Now in ns, later than every file: a robot's clock may start in the past, their order must not change."""
        with self._guard:
            return max(time.time_ns(), 1 + max((max(k.info.created, k.used) for k in self._kept.values()), default=0))

    def add(self, info: CapsuleInfo) -> None:
        """Note that a capsule's file was written, and what it says; STORAGE if it is not there."""
        self._keep(_kept(path_of(self.folder, info.name), info))

    def use(self, name: str) -> None:
        """Note that a file is used; the time outlives the process. Errors as `read_info`."""
        path, stamp = path_of(self.folder, name), self.next_stamp()
        try:
            os.utime(path, ns=(stamp, stamp))
        except OSError as error:
            raise storage(path, error) from error
        self._keep(look_at(path))

    def pin(self, name: str, pinned: bool) -> None:
        """Protect a capsule from the size limit for good, or no longer; durable on return."""
        if pinned == (name in self._pins):
            return
        pins = self.folder / PINS
        try:
            if pinned:
                pins.mkdir(exist_ok=True)
                os.close(os.open(pins / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644))
            else:
                (pins / name).unlink(missing_ok=True)
            sync_folder(pins)
            sync_folder(self.folder)
        except OSError as error:
            raise storage(pins / name, error) from error
        (self._pins.add if pinned else self._pins.discard)(name)

    def remove(self, name: str) -> None:
        """Delete a capsule's file for good; UNKNOWN_CAPSULE if there is none, STORAGE if the disk refuses."""
        self.evict(name)
        try:
            sync_folder(self.folder)
        except OSError as error:
            raise storage(self.folder, error) from error
        self.pin(name, False)

    def evict(self, name: str) -> None:
        """Delete a file that nothing pins, without waiting for the disk; errors as `remove`.

        One that comes back because the power failed is counted, and goes again.
        """
        path = path_of(self.folder, name)
        try:
            path.unlink()
        except FileNotFoundError as error:
            raise FlashrtError(ErrorCode.UNKNOWN_CAPSULE, f"{path}: there is no such file") from error
        except OSError as error:
            raise storage(path, error) from error
        with self._guard:
            self.unreadable.pop(name, None)
            self._kept.pop(name, None)

    def victims(self, name: str, nbytes: int, is_pinned: Callable[[str], bool]) -> list[str]:
        """The least recently used, unpinned capsules that must go for a new file.

        Unreadable files count, but are nobody's to delete.

        Raises:
            FlashrtError: OVER_BUDGET if they are too few.
        """
        with self._guard:
            others = [kept for kept in self._kept.values() if kept.info.name != name]
        unreadable = sum(self._size(other) for other in self.unreadable if other != name)
        excess = nbytes + unreadable + sum(kept.nbytes for kept in others) - self.size_limit
        found = []
        for kept in sorted(others, key=lambda kept: kept.used):
            if excess <= 0:
                break
            other = kept.info.name
            if not (is_pinned(other) or self.is_pinned(other)):
                found.append(other)
                excess -= kept.nbytes
        if excess > 0:
            raise FlashrtError(
                ErrorCode.OVER_BUDGET,
                f"{self.folder}: capsule {name} asks for {nbytes} bytes, {excess} more than can be made free of "
                f"{self.size_limit}; {unreadable} are in unreadable files and the rest is pinned. "
                "Delete some, or raise the limit",
            )
        return found

    def _keep(self, kept: Kept) -> None:
        with self._guard:
            self.unreadable.pop(kept.info.name, None)
            self._kept[kept.info.name] = kept

    def _living_pins(self) -> set[str]:
        """The pins, without those whose capsule never came, or went."""
        pins = read_pins(self.folder)
        dead = pins - self._kept.keys() - self.unreadable.keys()
        for name in dead:
            (self.folder / PINS / name).unlink()
        return pins - dead

    def _size(self, name: str) -> int:
        try:
            return path_of(self.folder, name).lstat().st_size
        except FileNotFoundError:
            return 0


def default_folder(node: str = "policy") -> Path:
    """Where a node of that full name keeps its capsules unless it is told otherwise."""
    home = Path(os.environ.get("ROS_HOME") or Path.home() / ".ros")
    return home / "flashrt" / node.strip("/").replace("/", ".")


def scan(folder: Path) -> tuple[list[Kept], dict[str, FlashrtError]]:
    """The capsule files of a folder whose headers are whole, by name, and why the others are not readable.

    Raises:
        OSError: it cannot be listed.
    """
    kept: list[Kept] = []
    unreadable: dict[str, FlashrtError] = {}
    for path in sorted(folder.iterdir()):
        name = name_of(path)
        if name is None:
            continue
        try:
            kept.append(look_at(path))
        except FlashrtError as error:
            unreadable[name] = error
    return kept, unreadable


def look_at(path: Path) -> Kept:
    """Read what an index keeps of a file; errors as `read_info`."""
    return _kept(path, read_info(path))


def _kept(path: Path, info: CapsuleInfo) -> Kept:
    try:
        status = path.lstat()
    except OSError as error:
        raise storage(path, error) from error
    return Kept(info, status.st_size, status.st_mtime_ns)


def read_pins(folder: Path) -> set[str]:
    """The names of a folder's pinned capsules."""
    pins = folder / PINS
    return {pin.name for pin in pins.iterdir()} if pins.is_dir() else set()
