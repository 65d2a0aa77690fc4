# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A folder of capsule files within a size limit, owned by one process at a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from flashrt_ros.policy.capsule_file import RecipeEncoder, encode_capsule, read_capsule
from flashrt_ros.policy.capsule_info import path_of
from flashrt_ros.policy.folder_index import ASIDE, FolderIndex
from flashrt_ros.policy.tensor_file import commit, storage
from flashrt_ros.runtime.buffers import BufferSet
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.manifest import Manifest


class CapsuleFolder:
    """Writes and reads capsule files; one thread at a time may change it."""

    def __init__(self, folder: Path, size_limit: int) -> None:
        """Take the folder; errors as `FolderIndex`."""
        self.index = FolderIndex(folder, size_limit)
        self._folder = folder
        self._recipes = RecipeEncoder()

    def close(self) -> None:
        """Let another process have the folder."""
        self.index.close()

    def write(self, capsule: Capsule, buffers: BufferSet, is_pinned: Callable[[str], bool]) -> Path:
        """Save a capsule; on return it is safe on the disk, in the place of an older one of its name.

        Only then the least recently used that are not pinned are removed until the folder is within its limit, which
        it exceeds until then by one capsule. A pin of a capsule that somebody has asked for outlives the process.

        Raises:
            FlashrtError: OVER_BUDGET if what is pinned or unreadable leaves too little room, STORAGE if the disk
                refuses; an older capsule of that name stands then.
        """
        name, created = capsule.name, self.index.next_stamp()
        path, aside = path_of(self._folder, name), self._folder / ASIDE
        encoded = encode_capsule(capsule, buffers, created, self._recipes)
        victims = self.index.victims(name, encoded.nbytes, is_pinned)
        try:
            aside.unlink(missing_ok=True)
            info = encoded.write_aside(aside)
            os.utime(aside, ns=(created, created))
            if is_pinned(name) and not capsule.automatic:
                self.index.pin(name, True)
            commit(aside, path)
        except OSError as error:
            raise storage(path, error) from error
        self.index.add(info)
        for victim in victims:
            self.index.evict(victim)
        return path

    def read(self, name: str, buffers: BufferSet, manifest: Manifest, foreign: bool = False) -> Capsule:
        """Read a capsule of the folder, which counts as its use; as `read_capsule`."""
        capsule = read_capsule(path_of(self._folder, name), buffers, manifest, foreign)
        self.index.use(name)
        return capsule
