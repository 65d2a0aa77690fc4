# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Bags, MCAP or sqlite3: a folder of `ros2 bag record`, one of its files, or what is left of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
from rosbags.rosbag2 import Reader
from rosbags.rosbag2.errors import ReaderError
from rosbags.serde import SerdeError

from flashrt_ros.policy.replay_mcap import Salvage, salvage
from flashrt_ros.policy.replay_types import typestore
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

Raw = tuple[str, int, bytes]
"""Topic, time of recording (ns), and the serialised message."""

_SUFFIXES = (".db3", ".mcap")
_UNREADABLE = (ReaderError, apsw.Error, OSError, ValueError, IndexError, TypeError)


class Bag:
    """The messages of a bag, in the order in which they were recorded.

    Attributes:
        types: topic to message type.
        troubles: what is wrong with the files, where the rest can be used.
    """

    def __init__(self, path: Path) -> None:
        """Open it.

        Raises:
            FlashrtError: as `files_of`; DAMAGED, nothing of it can be read.
        """
        self.path = path
        self.troubles: list[str] = []
        self._salvaged: list[Salvage] = []
        self._readers: list[Reader] = []
        files = files_of(path)
        if path.is_dir() and path not in files:
            self.troubles.append(f"{path}: metadata.yaml is absent, as if its recorder was killed; its files are read")
        for file in files:
            self._open(file)
        definitions = {c.msgtype: c.msgdef.data for r in self._readers for c in r.connections if c.msgdef.data}
        for part in self._salvaged:
            definitions |= part.definitions
        self.types = {c.topic: c.msgtype for reader in self._readers for c in reader.connections}
        for part in self._salvaged:
            self.types |= part.types
        self._store = typestore(definitions)

    def close(self) -> None:
        """Close the files."""
        for reader in self._readers:
            reader.close()

    def __enter__(self) -> Bag:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def messages(self, topics: Sequence[str], start: int | None = None, stop: int | None = None) -> Iterator[Raw]:
        """The messages of some topics with `start` <= time < `stop`; DAMAGED where one cannot be read."""
        for reader in self._readers:
            connections = [c for c in reader.connections if c.topic in topics]
            if not connections:
                continue
            try:
                for connection, time, raw in reader.messages(connections, start, stop):
                    yield connection.topic, time, raw
            except _UNREADABLE as error:
                raise _damaged(self.path, error) from error
        for part in self._salvaged:
            for topic, time, raw in part.messages:
                if topic in topics and (start is None or start <= time) and (stop is None or time < stop):
                    yield topic, time, raw

    def decode(self, topic: str, raw: bytes) -> Any:
        """A message as an object with the fields of its type; DAMAGED, or NOT_SUPPORTED if its type is unknown."""
        kind = self.types[topic]
        if kind not in self._store.fielddefs:
            raise FlashrtError(ErrorCode.NOT_SUPPORTED, f"{self.path}: {topic} is of the unknown type {kind}")
        try:
            return self._store.deserialize_cdr(raw, kind)
        except (SerdeError, IndexError, ValueError) as error:
            raise FlashrtError(
                ErrorCode.DAMAGED, f"{self.path}: a message of {topic} cannot be read: {error}"
            ) from error

    def _open(self, file: Path) -> None:
        try:
            reader = Reader(file)
            reader.open()
            for _ in reader.messages():
                pass  # what is damaged shows here, and not in the middle of a replay
        except _UNREADABLE as error:
            self._salvage(file, error)
        else:
            self._readers.append(reader)

    def _salvage(self, file: Path, error: Exception) -> None:
        parts = [file] if file.suffix == ".mcap" else sorted(file.glob("*.mcap")) if file.is_dir() else []
        found = [(part, salvage(part)) for part in parts]
        if not any(part.messages for _, part in found):
            raise _damaged(file, error) from error
        for part, rescued in found:
            self._salvaged.append(rescued)
            if rescued.trouble:
                self.troubles.append(f"{part}: {rescued.trouble}; what is before that is used")


def files_of(path: Path) -> list[Path]:
    """What is to be opened of a bag: itself, or its files where its metadata.yaml is absent.

    Raises:
        FlashrtError: STORAGE, there is nothing of that name, or it is no bag.
    """
    if not path.exists():
        raise FlashrtError(ErrorCode.STORAGE, f"{path}: there is no such file or folder")
    if (path.suffix in _SUFFIXES and path.is_file()) or (path / "metadata.yaml").is_file():
        return [path]
    files = sorted(file for suffix in _SUFFIXES for file in path.glob(f"*{suffix}"))
    if not files:
        inside = "no metadata.yaml, *.mcap or *.db3 is in it"
        why = inside if path.is_dir() else "its name ends in neither .mcap nor .db3"
        raise FlashrtError(ErrorCode.STORAGE, f"{path} is no bag and no incident: {why}; name one")
    return files


def _damaged(path: Path, error: Exception) -> FlashrtError:
    return FlashrtError(ErrorCode.DAMAGED, f"{path}: the bag cannot be read: {error}")
