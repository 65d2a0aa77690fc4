# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Digests of capsules, computed on a thread of their own."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

from flashrt_ros.runtime.buffers import BufferSet
from flashrt_ros.runtime.capsule import Capsule


class CapsuleDigests:
    """sha256 of the live state bytes of named capsules, there some time after it was asked for."""

    def __init__(self, buffers: BufferSet) -> None:
        """`buffers`: whose state the capsules hold."""
        self._buffers = buffers
        self._requests = itertools.count()
        self._asked: dict[str, int] = {}
        self._known: dict[str, str] = {}
        self._executor = ThreadPoolExecutor(1, "capsule_digests")

    def get(self, capsule: Capsule) -> str:
        """The digest; empty until it is computed, which the first call starts."""
        name = capsule.name
        if name not in self._asked:
            self._asked[name] = next(self._requests)
            self._executor.submit(self._compute, name, self._asked[name], capsule)
        return self._known.get(name, "")

    def remember(self, name: str, digest: str) -> None:
        """Take a digest that was computed elsewhere."""
        self._asked[name] = next(self._requests)
        self._known[name] = digest

    def forget(self, name: str) -> None:
        """Another capsule may have this name from now on."""
        self._asked.pop(name, None)
        self._known.pop(name, None)

    def close(self) -> None:
        """End the thread behind the digest in progress."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _compute(self, name: str, request: int, capsule: Capsule) -> None:
        digest = capsule.sha256(self._buffers)
        if self._asked.get(name) == request:
            self._known[name] = digest
