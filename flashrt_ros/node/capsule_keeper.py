# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The capsules of a session: in memory, on their way to the disk, and as messages."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from flashrt_ros.node.capsule_digests import CapsuleDigests
from flashrt_ros.node.executor_bridge import ExecutorBridge
from flashrt_ros.node.interfaces import msg
from flashrt_ros.node.stamps import from_nanoseconds
from flashrt_ros.policy.loading import Policy
from flashrt_ros.policy.resume import ResumePoint
from flashrt_ros.policy.store import CapsuleStore
from flashrt_ros.policy.tiers import CapsuleTiers, Held
from flashrt_ros.policy.writer import CapsuleWriter
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary

_DESCRIBED = 1024
"""Messages that are kept, since a list has the same again and again, and making each takes longer than all the rest."""


class CapsuleKeeper:
    """Store, folder and digests. The executor thread calls it; nothing waits for the disk unless it is awaited."""

    def __init__(
        self,
        bridge: ExecutorBridge,
        policy: Policy,
        store: CapsuleStore,
        writer: CapsuleWriter,
        on_durable: Callable[[str], None],
    ) -> None:
        """`on_durable` is called with the id of a boundary that is safe on the disk from now on."""
        self.store = store
        self._manifest = policy.manifest()
        self.tiers = CapsuleTiers(store, writer, self._manifest)
        self.log_trouble = ""
        """Why the newest inputs are not on the disk; empty: they are, or will be."""
        self._trouble = ""
        self._bridge = bridge
        self._writer = writer
        self._on_durable = on_durable
        self._names = policy.model.config.state_names
        self._digests = CapsuleDigests(policy.plan.buffers)
        self._described: dict[str, tuple[object, msg.Capsule]] = {}

    @property
    def trouble(self) -> str:
        """Why something is not as safe on the disk as it should be; empty: it is, or will be."""
        return self._trouble or self.log_trouble

    def keep(self, capsule: Capsule) -> None:
        """Write a capsule to the folder, some time; one that lies there already is only marked as used."""
        file = self._writer.file(capsule.name)
        if file is not None and file.info.boundary == capsule.boundary.id and self._writer.is_durable(capsule.name):
            self._writer.use(capsule.name)
            return
        self._digests.forget(capsule.name)
        future = self._writer.write(capsule)
        future.add_done_callback(lambda done: self._bridge.leave(lambda: self._written(capsule, done)))

    def follow(self, head: Boundary) -> None:
        """Log what led to a new head, some time; from any thread."""
        future = self._writer.follow(head)
        future.add_done_callback(lambda done: self._bridge.leave(lambda: self._followed(done)))

    async def save(self, name: str) -> tuple[Capsule, Path]:
        """Write a held capsule and wait until it is safe; errors as CapsuleStore.get and CapsuleWriter.write."""
        capsule = self.store.get(name)
        if not _has_bytes(capsule):
            raise FlashrtError(
                ErrorCode.MANIFEST_MISMATCH,
                f"capsule {name} was made elsewhere and is held as its recipe alone; it is on the disk already",
            )
        future = self._writer.write(capsule)
        path = await self._bridge.result(future)
        self._written(capsule, future)
        return capsule, path

    async def load(self, name: str) -> Capsule:
        """Read a capsule into memory; DUPLICATE_NAME if one of that name is held, errors as CapsuleWriter.read."""
        if name in self.store:
            raise FlashrtError(ErrorCode.DUPLICATE_NAME, f"capsule {name} is in memory already")
        return self._add(await self._bridge.result(self._writer.read(name, foreign=True)))

    async def fetch(self, name: str, foreign: bool = False) -> str:
        """Bring a capsule into memory before somebody needs it; what is worth saying of that.

        While it is read, everything else goes on. `foreign`: one that was made elsewhere comes as its recipe alone.
        Errors as CapsuleStore.get if no tier has it, and as CapsuleWriter.read.
        """
        if name in self.store:
            self._writer.use(name)
            return ""
        began = time.perf_counter()
        capsule = next((coming for coming in self._writer.coming() if coming.name == name), None)
        if capsule is None and self._writer.file(name) is None:
            self.store.get(name)  # says why there is none
        if capsule is None:
            capsule = await self._bridge.result(self._writer.read(name, foreign))
        self._add(capsule)
        return f"read from the disk in {(time.perf_counter() - began) * 1e3:.1f} ms"

    async def fetch_if_any(self, name: str) -> None:
        """Bring a capsule into memory that would save prefilling; it is no error if none fits."""
        held = self._writer.file(name)
        if name in self.store or held is None or held.info.manifest != self._manifest:
            return
        try:
            await self.fetch(name)
        except FlashrtError as error:
            self._trouble = f"capsule {name} could not be used: {error}"

    async def to_disk(self, name: str) -> int:
        """Let a capsule leave memory once it is safe on the disk; the bytes that it freed. Errors as `save`."""
        if name not in self.store and self._writer.file(name) is not None:
            return 0
        capsule = self.store.get(name)
        if _has_bytes(capsule) and not self._writer.is_durable(name):
            await self.save(name)
        return self.store.drop(name).nbytes

    async def resume_point(self) -> ResumePoint:
        """Find where to go on."""
        found = await self._bridge.result(self._writer.resume_point())
        if found.capsule is not None:
            self._add(found.capsule)
        return found

    def drop(self, name: str) -> int:
        """Forget a capsule, in memory at once and on the disk some time; the bytes of memory that it freed.

        Errors as CapsuleStore.drop.
        """
        freed = self.tiers.drop(name)
        self._digests.forget(name)
        return freed

    def message(self, capsule: Capsule) -> msg.Capsule:
        """Describe a capsule in memory."""
        return self.describe(self.tiers.of(capsule))

    def describe(self, held: Held) -> msg.Capsule:
        """Describe a capsule of any tier; the message is not to be changed, it may be returned again."""
        capsule, info = held.capsule, held.info
        if capsule is not None:
            name, sha256 = capsule.name, self._sha256(capsule)
            content: object = (capsule.boundary.id, capsule.label, capsule.parent, capsule.automatic, capsule.nbytes)
        else:
            assert info is not None
            name, sha256, content = info.name, info.sha256, (info.boundary, info.label, info.parent, info.automatic)
        key = (content, sha256, held.tier, held.pinned, held.durable, held.foreign)
        known = self._described.get(name)
        if known is not None and known[0] == key:
            return known[1]
        if len(self._described) >= _DESCRIBED:
            self._described.clear()
        common = {"tier": held.tier.value, "pinned": held.pinned, "durable": held.durable, "foreign": held.foreign}
        fields = self._of_capsule(capsule) if capsule is not None else self._of_file(held)
        message = msg.Capsule(**common, **fields, sha256=sha256)
        self._described[name] = key, message
        return message

    def _of_capsule(self, capsule: Capsule) -> dict[str, Any]:
        boundary = capsule.boundary
        return {
            "name": capsule.name,
            "label": capsule.label,
            "parent": capsule.parent,
            "boundary": boundary.id,
            "boundary_kind": boundary.kind,
            "position": boundary.cursors.get("position", 0),
            "bytes": capsule.nbytes,
            "instruction": boundary.instruction,
            "automatic": capsule.automatic,
            "stamp": from_nanoseconds(boundary.stamp),
            "joint_names": self._names if boundary.measured else (),
            "joint_positions": boundary.measured,
        }

    def _sha256(self, capsule: Capsule) -> str:
        """The digest of a capsule's state; the writer computes it where there is a file, or will be one."""
        name = capsule.name
        file = self._writer.file(name)
        if file is not None and (self._writer.is_durable(name) or not _has_bytes(capsule)):
            return file.info.sha256
        return self._digests.get(capsule) if _has_bytes(capsule) and not self._writer.is_pending(name) else ""

    def _of_file(self, held: Held) -> dict[str, Any]:
        info = held.info
        if info is None:
            raise ValueError("a capsule of no tier")
        return {
            "name": info.name,
            "label": info.label,
            "parent": info.parent,
            "boundary": info.boundary,
            "boundary_kind": info.kind,
            "position": info.cursors.get("position", 0),
            "bytes": info.nbytes,
            "instruction": info.instruction,
            "automatic": info.automatic,
            "stamp": from_nanoseconds(info.stamp),
            "joint_names": self._names if info.measured else (),
            "joint_positions": info.measured,
        }

    def disk_usage(self) -> tuple[int, int]:
        """Bytes of all capsule files, and their limit."""
        return self._writer.disk_usage()

    def close(self, timeout: float) -> bool:
        """Finish what is being written, for `timeout` seconds at most. False: something was not written."""
        self._digests.close()
        return self._writer.close(timeout)

    def _add(self, capsule: Capsule) -> Capsule:
        """Hold a capsule that was read; another request may have brought it in the meantime."""
        if capsule.name in self.store:
            return self.store.get(capsule.name)
        self.store.add(capsule)
        self._digests.forget(capsule.name)
        return capsule

    def _followed(self, done: Future[Boundary]) -> None:
        if done.cancelled():
            return  # a newer head took its place
        error = done.exception()
        if error is None:
            self.log_trouble = ""
            self._on_durable(done.result().id)
        elif isinstance(error, FlashrtError):
            self.log_trouble = f"the newest inputs are not safe on the disk: {error}"
        else:
            raise error

    def _written(self, capsule: Capsule, done: Future[Path]) -> None:
        if done.cancelled():
            return  # a newer capsule of that name took its place
        error = done.exception()
        if error is None:
            self._trouble = ""
            file = self._writer.file(capsule.name)
            if file is not None and self._writer.is_durable(capsule.name):
                self._digests.remember(capsule.name, file.info.sha256)
            if self.log_trouble:  # else the log knows a head at least as new
                self._on_durable(capsule.boundary.id)
        elif isinstance(error, FlashrtError):
            self._trouble = f"capsule {capsule.name} is not safe on the disk: {error}"
        else:
            raise error


def _has_bytes(capsule: Capsule) -> bool:
    return bool(capsule.small.ranges)
