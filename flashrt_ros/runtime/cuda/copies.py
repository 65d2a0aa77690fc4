# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Copies of many ranges of memory at once, by kernels/copy.cu."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from flashrt_ros.runtime.cuda.launcher import KernelLauncher

RANGES = 64
"""Ranges of one launch: the table is a kernel parameter."""

THREADS = 512
CHUNK = 32 << 10
"""Bytes that a block copies."""


@dataclass(frozen=True, slots=True)
class Copy:
    """`nbytes` bytes from one address that the GPU can reach to another; both multiples of 16."""

    source: int
    target: int
    nbytes: int


class _Table(ctypes.Structure):
    _fields_ = (
        ("source", ctypes.c_uint64 * RANGES),
        ("target", ctypes.c_uint64 * RANGES),
        ("nbytes", ctypes.c_uint64 * RANGES),
        ("first_chunk", ctypes.c_uint32 * (RANGES + 1)),
        ("count", ctypes.c_uint32),
    )


class Copier:
    """Copies ranges on the stream; nothing is waited for."""

    def __init__(self, launcher: KernelLauncher) -> None:
        self._launcher = launcher

    def copy(self, copies: Sequence[Copy]) -> None:
        """One launch for every `RANGES` ranges."""
        for first in range(0, len(copies), RANGES):
            self._launch(copies[first : first + RANGES])

    def _launch(self, copies: Sequence[Copy]) -> None:
        table = _Table(count=len(copies))
        chunks = 0
        for index, part in enumerate(copies):
            table.source[index], table.target[index], table.nbytes[index] = part.source, part.target, part.nbytes
            table.first_chunk[index] = chunks
            chunks += -(-part.nbytes // CHUNK)
        table.first_chunk[len(copies)] = chunks
        self._launcher.launch_with("copy", "copy_ranges", chunks, THREADS, table)
