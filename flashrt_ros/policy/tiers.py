# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Capsules in memory and on the disk, under one name each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from flashrt_ros.policy.capsule_file import shortened
from flashrt_ros.policy.capsule_info import CapsuleInfo
from flashrt_ros.policy.names import check_name
from flashrt_ros.policy.store import CapsuleStore
from flashrt_ros.policy.writer import CapsuleWriter
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.manifest import Manifest, differences


class Tier(StrEnum):
    """Where a capsule's bytes lie; of several places the fastest."""

    DEVICE = "device"
    HOST = "host"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class Held:
    """A capsule of any tier.

    Attributes:
        tier: where its bytes lie.
        capsule: itself, where it is in memory or on its way to the disk; else None.
        info: its file's header, where it lies on the disk alone; else None.
        pinned: no budget takes it.
        durable: safe on the disk.
        foreign: how its bytes do not fit this policy and device; empty: they do.
    """

    tier: Tier
    capsule: Capsule | None
    info: CapsuleInfo | None
    pinned: bool
    durable: bool
    foreign: str


class CapsuleTiers:
    """The store and the folder as one space of names.

    What the store lets go for its budget stays in the folder, until the folder's own limit takes it. Any thread may
    call; none waits for the disk or the device.
    """

    def __init__(self, store: CapsuleStore, writer: CapsuleWriter, manifest: Manifest) -> None:
        """`manifest`: of the policy and device that the bytes must fit."""
        self._store = store
        self._writer = writer
        self._manifest = manifest

    def list(self) -> list[Held]:
        """Every capsule: those in memory, the least recently used first, then those on the disk, the newest first."""
        memory = self._store.list()
        names = {capsule.name for capsule in memory}
        coming = [capsule for capsule in self._writer.coming() if capsule.name not in names]
        names |= {capsule.name for capsule in coming}
        files = [kept.info for kept in self._writer.files() if kept.info.name not in names]
        return [*map(self.of, (*memory, *coming)), *map(self._on_disk, files)]

    def of(self, capsule: Capsule) -> Held:
        """What is to be said of a capsule that is in memory, or was a moment ago."""
        name = capsule.name
        pinned = self._store.is_pinned(name) or self._writer.is_pinned(name)
        durable = self._writer.is_durable(name)
        return Held(self._tier(capsule), capsule, None, pinned, durable, self._foreign(capsule.manifest))

    def on_disk(self, name: str) -> bool:
        """Whether the folder has a file of that name, or soon has; one that is being deleted does not count."""
        return self._writer.is_coming(name) or self._writer.file(name) is not None

    def check_new(self, name: str) -> None:
        """Raise DUPLICATE_NAME if a capsule of that name lies on the disk alone; the store knows its own."""
        if name not in self._store and self.on_disk(name):
            raise FlashrtError(
                ErrorCode.DUPLICATE_NAME, f"capsule {name} exists on the disk; drop it or choose another name"
            )

    def drop(self, name: str) -> int:
        """Forget a capsule in every tier, its file some time after; the bytes of memory that it freed.

        Raises:
            FlashrtError: as `CapsuleStore.drop`; no tier has it.
        """
        check_name(name)
        on_disk = self.on_disk(name)
        freed = 0 if on_disk and name not in self._store else self._store.drop(name).nbytes
        if on_disk:
            self._store.forget(name)
            self._writer.remove(name)
        return freed

    def _on_disk(self, info: CapsuleInfo) -> Held:
        return Held(Tier.DISK, None, info, self._writer.is_pinned(info.name), True, self._foreign(info.manifest))

    def _foreign(self, manifest: Manifest) -> str:
        return shortened(differences(self._manifest, manifest))

    def _tier(self, capsule: Capsule) -> Tier:
        data = (*capsule.small.data, *capsule.rows.data)
        if not data or capsule.name not in self._store:
            return Tier.DISK
        return Tier.HOST if all(part.device.type == "cpu" for part in data) else Tier.DEVICE
