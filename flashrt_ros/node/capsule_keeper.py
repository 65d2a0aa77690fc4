# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The capsules of a session: in memory, on their way to the disk, and as messages."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from flashrt_ros.node.capsule_digests import CapsuleDigests
from flashrt_ros.node.executor_bridge import ExecutorBridge
from flashrt_ros.node.interfaces import msg
from flashrt_ros.node.stamps import from_nanoseconds
from flashrt_ros.policy.capsule_folder import Newest
from flashrt_ros.policy.loading import Policy
from flashrt_ros.policy.store import CapsuleStore
from flashrt_ros.policy.writer import CapsuleWriter
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


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
        self.trouble = ""
        """Why the newest capsule is not on the disk; empty: it is, or will be."""
        self._bridge = bridge
        self._writer = writer
        self._on_durable = on_durable
        self._names = policy.model.config.state_names
        self._digests = CapsuleDigests(policy.plan.buffers)

    def keep(self, capsule: Capsule) -> None:
        """Write a new capsule to the folder, some time."""
        self._digests.forget(capsule.name)
        self._digests.get(capsule)
        future = self._writer.write(capsule)
        future.add_done_callback(lambda done: self._bridge.post(lambda: self._written(capsule, done)))

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
            raise FlashrtError(
                ErrorCode.DUPLICATE_NAME, f"capsule {name} is in memory already; drop it to load the one on the disk"
            )
        capsule = await self._bridge.result(self._writer.read(name, foreign=True))
        self.store.add(capsule)
        self._digests.forget(name)
        return capsule

    async def newest(self) -> Newest:
        """Find the newest whole and fitting capsule of the folder."""
        return await self._bridge.result(self._writer.newest())

    def drop(self, name: str) -> Capsule:
        """Forget a capsule in memory; its file, if any, stays. Errors as CapsuleStore.drop."""
        capsule = self.store.drop(name)
        self._digests.forget(name)
        return capsule

    def message(self, capsule: Capsule) -> msg.Capsule:
        """Describe a capsule."""
        boundary = capsule.boundary
        return msg.Capsule(
            name=capsule.name,
            label=capsule.label,
            parent=capsule.parent,
            boundary=boundary.id,
            boundary_kind=boundary.kind,
            position=boundary.cursors.get("position", 0),
            bytes=capsule.nbytes,
            instruction=boundary.instruction,
            pinned=self.store.is_pinned(capsule.name),
            automatic=capsule.automatic,
            durable=self._writer.is_durable(capsule.name),
            sha256=self._digests.get(capsule) if _has_bytes(capsule) else "",
            stamp=from_nanoseconds(boundary.stamp),
            joint_names=self._names if boundary.measured else (),
            joint_positions=boundary.measured,
        )

    def close(self, timeout: float) -> bool:
        """Finish what is being written, for `timeout` seconds at most. False: something was not written."""
        self._digests.close()
        return self._writer.close(timeout)

    def _written(self, capsule: Capsule, done: Future[Path]) -> None:
        if done.cancelled():
            return  # a newer capsule of that name took its place
        error = done.exception()
        if error is None:
            self.trouble = ""
            self._on_durable(capsule.boundary.id)
        elif isinstance(error, FlashrtError):
            self.trouble = f"capsule {capsule.name} is not safe on the disk: {error}"
        else:
            raise error


def _has_bytes(capsule: Capsule) -> bool:
    return bool(capsule.small.ranges)
