# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Capsules to and from the disk on a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

from flashrt_ros.policy.capsule_folder import CapsuleFolder
from flashrt_ros.policy.folder_index import Kept
from flashrt_ros.policy.recipe_log import RecipeLog
from flashrt_ros.policy.resume import ResumePoint, find_resume_point
from flashrt_ros.runtime.buffers import BufferSet
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary
from flashrt_ros.runtime.manifest import Manifest

Result = TypeVar("Result")


class CapsuleWriter:
    """Does the work of one folder in the order of the calls. No call waits for the disk: each gives a future.

    A future's result or FlashrtError is there when the disk has answered; its callbacks run on the writer's thread
    and must be short. A future of a write or a boundary that a newer one overtook is cancelled.
    """

    def __init__(
        self,
        folder: str | Path,
        size_limit: int,
        buffers: BufferSet,
        manifest: Manifest,
        is_pinned: Callable[[str], bool],
        queue_limit: int = 8,
        log_limit: int = 256 << 20,
    ) -> None:
        """Take the folder; STORAGE if it cannot be used or another process uses it.

        Args:
            folder: is made if absent.
            size_limit: bytes of capsule files.
            buffers: whose state the capsules hold.
            manifest: what a capsule that is read must equal.
            is_pinned: whether the size limit must spare a capsule; called on the writer's thread.
            queue_limit: writes that may wait, each holding its capsule's bytes; one more is refused.
            log_limit: bytes of the recipe log.
        """
        self._folder = CapsuleFolder(Path(folder), size_limit)
        self._log = RecipeLog(Path(folder), manifest, log_limit)
        self._buffers = buffers
        self._manifest = manifest
        self._is_pinned = is_pinned
        self._queue_limit = queue_limit
        self._lock = threading.Lock()
        self._closed = False
        self._waiting: dict[str, tuple[Capsule, Future[Path]]] = {}
        self._writing: Capsule | None = None
        self._leaving: set[str] = set()
        self._durable: set[str] = set()
        self._following: Future[Boundary] | None = None
        self._executor = ThreadPoolExecutor(1, "capsule_writer")

    def write(self, capsule: Capsule) -> Future[Path]:
        """Save a capsule; the result is its file, safe on the disk.

        Errors: BAD_NAME, OVER_BUDGET, STORAGE; BUSY if too many writes wait; INACTIVE after `close`.
        """
        with self._lock:
            self._durable.discard(capsule.name)
            self._leaving.discard(capsule.name)
            overtaken = self._waiting.pop(capsule.name, None)
            if len(self._waiting) >= self._queue_limit:
                future: Future[Path] = _failed(
                    ErrorCode.BUSY,
                    f"capsule {capsule.name} is not saved: {len(self._waiting)} others wait for the disk",
                )
            else:
                future = self._submit(lambda: self._write(capsule))
                self._waiting[capsule.name] = (capsule, future)
        if overtaken is not None:
            overtaken[1].cancel()
        return future

    def remove(self, name: str) -> Future[None]:
        """Delete a capsule's file, or do not even write it if it waits for that.

        Errors: BAD_NAME, UNKNOWN_CAPSULE, STORAGE, INACTIVE after `close`.
        """
        with self._lock:
            overtaken = self._waiting.pop(name, None)
        unwritten = overtaken is not None and overtaken[1].cancel()
        with self._lock:
            self._durable.discard(name)
            self._leaving.add(name)
            return self._submit(lambda: self._remove(name, unwritten))

    def read(self, name: str, foreign: bool = False) -> Future[Capsule]:
        """Read a capsule, checked; as `read_capsule`."""
        with self._lock:
            return self._submit(lambda: self._read(name, foreign))

    def use(self, name: str) -> Future[None]:
        """Note that a capsule is used, so that the size limit takes others first; nothing where it has no file."""
        with self._lock:
            return self._submit(lambda: self._folder.index.use(name) if name in self._folder.index else None)

    def follow(self, boundary: Boundary) -> Future[Boundary]:
        """Append what led to the new head to the recipe log; the result is the head, safe on the disk.

        Errors as `RecipeLog.follow`; INACTIVE after `close`.
        """
        with self._lock:
            overtaken = self._following
            future = self._following = self._submit(lambda: self._follow(boundary))
        if overtaken is not None:
            overtaken.cancel()
        return future

    def resume_point(self) -> Future[ResumePoint]:
        """Find where to go on; as `find_resume_point`."""
        with self._lock:
            return self._submit(self._resume_point)

    def files(self) -> list[Kept]:
        """The readable capsule files, the newest first, without those that are about to be removed."""
        return [kept for kept in self._folder.index.newest_first() if kept.info.name not in self._leaving]

    def file(self, name: str) -> Kept | None:
        """The readable file of a capsule, unless it is about to be removed."""
        return None if name in self._leaving else self._folder.index.get(name)

    def waiting(self) -> list[Capsule]:
        """The capsules that wait for the disk or are being written, but those that are removed as soon as they are."""
        with self._lock:
            found = [capsule for capsule, _ in self._waiting.values()]
            written = self._writing
        if written is None or written.name in self._leaving or written.name in (capsule.name for capsule in found):
            return found
        return [written, *found]

    def is_pending(self, name: str) -> bool:
        """Whether a capsule of that name waits for the disk or is being written."""
        writing = self._writing
        return name in self._waiting or (writing is not None and name == writing.name)

    def is_coming(self, name: str) -> bool:
        """Whether there will be a file of that name; one that is removed as soon as it is written does not count."""
        return self.is_pending(name) and name not in self._leaving

    def is_pinned(self, name: str) -> bool:
        """Whether a capsule's file has a pin, which outlives the process."""
        return self._folder.index.is_pinned(name)

    def disk_usage(self) -> tuple[int, int]:
        """Bytes of all capsule files, and their limit."""
        return self._folder.index.nbytes, self._folder.index.size_limit

    def is_durable(self, name: str) -> bool:
        """Whether the newest capsule of that name that was written or read here is safe on the disk."""
        return name in self._durable and name in self._folder.index

    def flush(self, timeout: float) -> bool:
        """Wait until all earlier calls are done, callbacks included; False if `timeout` seconds were too short."""
        with self._lock:
            marker = self._submit(lambda: None)
        return not wait([marker], timeout).not_done

    def close(self, timeout: float) -> bool:
        """Finish all earlier calls and let the folder go; what is not done in `timeout` seconds is cancelled."""
        with self._lock:
            last = self._submit(self._folder.close)
            self._closed = True
        finished = not wait([last], timeout).not_done
        self._executor.shutdown(wait=finished, cancel_futures=not finished)
        return finished

    def _submit(self, work: Callable[[], Result]) -> Future[Result]:
        if self._closed:
            return _failed(ErrorCode.INACTIVE, "the capsule writer is closed")
        return self._executor.submit(work)

    def _write(self, capsule: Capsule) -> Path:
        with self._lock:
            # Another one may have overtaken this one just before it could be cancelled.
            if self._waiting.get(capsule.name, (None,))[0] is capsule:
                del self._waiting[capsule.name]
            self._writing = capsule
        try:
            self._log.remove_given_up()
            path = self._folder.write(capsule, self._buffers, self._is_pinned)
            self._mark_durable(capsule.name)
        finally:
            self._writing = None
        return path

    def _read(self, name: str, foreign: bool) -> Capsule:
        capsule = self._folder.read(name, self._buffers, self._manifest, foreign)
        self._mark_durable(name)
        return capsule

    def _remove(self, name: str, unwritten: bool) -> None:
        try:
            if not unwritten or name in self._folder.index:
                self._folder.index.remove(name)
        finally:
            with self._lock:
                self._leaving.discard(name)

    def _follow(self, boundary: Boundary) -> Boundary:
        self._log.follow(boundary)
        return boundary

    def _resume_point(self) -> ResumePoint:
        found = find_resume_point(self._folder.index, self._buffers, self._manifest)
        if found.capsule is not None:
            self._mark_durable(found.capsule.name)
        return found

    def _mark_durable(self, name: str) -> None:
        with self._lock:
            if name not in self._waiting:
                self._durable.add(name)


def _failed(code: ErrorCode, message: str) -> Future[Result]:
    future: Future[Result] = Future()
    future.set_exception(FlashrtError(code, message))
    return future
