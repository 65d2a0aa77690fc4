# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Capsules in memory, within a byte budget."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from flashrt_ros.policy.names import check_name
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

REMEMBERED_EVICTIONS = 1024


@dataclass(frozen=True, slots=True)
class StoreUsage:
    """Bytes held, pinned and allowed; capsules held; capsules evicted since the start."""

    used_bytes: int
    pinned_bytes: int
    budget_bytes: int
    capsules: int
    evictions: int


class CapsuleStore:
    """Named capsules; the least recently used make room for new ones, pinned ones never do.

    Any thread may call it; no call waits for more than a few dictionary operations.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._lock = threading.Lock()
        self._capsules: OrderedDict[str, Capsule] = OrderedDict()
        self._pinned: set[str] = set()
        self._evicted: OrderedDict[str, None] = OrderedDict()
        self._used_bytes = 0
        self._evictions = 0

    def add(self, capsule: Capsule, pinned: bool = False) -> tuple[str, ...]:
        """Keep a capsule and return the names of those that were evicted for it.

        Raises:
            FlashrtError: BAD_NAME; DUPLICATE_NAME; OVER_BUDGET if evicting every unpinned capsule would not make
                room. Nothing is evicted then.
        """
        check_name(capsule.name)
        with self._lock:
            if capsule.name in self._capsules:
                raise FlashrtError(
                    ErrorCode.DUPLICATE_NAME, f"capsule {capsule.name} exists; drop it first or choose another name"
                )
            victims = self._victims(capsule)
            for name in victims:
                self._remove(name)
                self._evicted[name] = None
            while len(self._evicted) > REMEMBERED_EVICTIONS:
                self._evicted.popitem(last=False)
            self._evictions += len(victims)
            self._evicted.pop(capsule.name, None)
            self._capsules[capsule.name] = capsule
            self._used_bytes += capsule.nbytes
            if pinned:
                self._pinned.add(capsule.name)
            return tuple(victims)

    def get(self, name: str) -> Capsule:
        """The capsule `name`, which counts as its use; UNKNOWN_CAPSULE, EVICTED or BAD_NAME if there is none."""
        with self._lock:
            capsule = self._require(name)
            self._capsules.move_to_end(name)
            return capsule

    def drop(self, name: str) -> Capsule:
        """Forget a capsule and return it; PINNED if it is the running episode's start, else as `get`."""
        with self._lock:
            if self._require(name).automatic and name in self._pinned:
                raise FlashrtError(ErrorCode.PINNED, f"capsule {name} is the start of the running episode; it stays")
            return self._remove(name)

    def forget(self, name: str) -> None:
        """Remember no more that a capsule of that name was evicted: it is gone from the disk too."""
        with self._lock:
            self._evicted.pop(name, None)

    def pin(self, name: str, pinned: bool = True) -> None:
        """Protect a capsule from eviction and dropping, or no longer; errors as `get`."""
        with self._lock:
            self._require(name)
            if pinned:
                self._pinned.add(name)
            else:
                self._pinned.discard(name)

    def is_pinned(self, name: str) -> bool:
        """Whether a capsule of that name is held and pinned."""
        with self._lock:
            return name in self._pinned

    def __contains__(self, name: str) -> bool:
        with self._lock:
            return name in self._capsules

    def list(self) -> tuple[Capsule, ...]:
        """All capsules, the least recently used first."""
        with self._lock:
            return tuple(self._capsules.values())

    def usage(self) -> StoreUsage:
        """What is held, for diagnostics."""
        with self._lock:
            return StoreUsage(
                self._used_bytes, self._pinned_bytes(), self.budget_bytes, len(self._capsules), self._evictions
            )

    def _require(self, name: str) -> Capsule:
        check_name(name)
        capsule = self._capsules.get(name)
        if capsule is not None:
            return capsule
        if name in self._evicted:
            raise FlashrtError(
                ErrorCode.EVICTED,
                f"capsule {name} left memory to keep within {self.budget_bytes} bytes; load it from the disk if it was "
                "saved, and pin what must stay or raise the capsule budget",
            )
        raise FlashrtError(
            ErrorCode.UNKNOWN_CAPSULE, f"no capsule is named {name}; {len(self._capsules)} are held, list them"
        )

    def _victims(self, capsule: Capsule) -> Sequence[str]:
        missing = self._used_bytes + capsule.nbytes - self.budget_bytes
        victims = []
        for name, held in self._capsules.items():
            if missing <= 0:
                break
            if name not in self._pinned:
                victims.append(name)
                missing -= held.nbytes
        if missing > 0:
            raise FlashrtError(
                ErrorCode.OVER_BUDGET,
                f"capsule {capsule.name} asks for {capsule.nbytes} bytes; of {self.budget_bytes} there are "
                f"{self.budget_bytes - self._used_bytes} free and {self._pinned_bytes()} pinned; "
                "drop or unpin capsules, or raise the capsule budget",
            )
        return victims

    def _remove(self, name: str) -> Capsule:
        capsule = self._capsules.pop(name)
        self._pinned.discard(name)
        self._used_bytes -= capsule.nbytes
        return capsule

    def _pinned_bytes(self) -> int:
        return sum(self._capsules[name].nbytes for name in self._pinned)
