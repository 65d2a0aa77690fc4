# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Memory taken once, given out in blocks that return by themselves when the last tensor on them is gone."""

from __future__ import annotations

import bisect
import math
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from flashrt_ros.runtime.buffers import ALIGNMENT


class ArenaFullError(Exception):
    """No free stretch is long enough; carries what was asked for."""


class Block:
    """A stretch of an arena, which torch takes for an array of bytes."""

    def __init__(self, arena: Arena, offset: int, nbytes: int) -> None:
        self._arena, self.offset, self.nbytes = arena, offset, nbytes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        address = self._arena.address + self.offset
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (address, False), "version": 3, "stream": None}

    def __del__(self) -> None:
        self._arena.release(self.offset, self.nbytes)


class Arena:
    """First fit over one stretch of device memory. Any thread may drop a tensor; one at a time takes one.

    The same order of takes and drops gives the same addresses, so a captured stage can be rehearsed.
    """

    def __init__(self, address: int, nbytes: int, free: Callable[[int], None] | None = None) -> None:
        """`free`, where the memory is the arena's own, gives it back when the arena and all tensors on it are gone."""
        if free is not None:
            weakref.finalize(self, free, address).atexit = False
        self.address, self.nbytes = address, nbytes
        self.peak = 0
        """The highest end of a block so far, in bytes."""
        self._free: list[tuple[int, int]] = [(0, nbytes)] if nbytes else []
        self._returned: deque[tuple[int, int]] = deque()
        self._lock = threading.Lock()

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Memory with unspecified content.

        Raises:
            ArenaFullError: nothing free is long enough.
        """
        wanted = math.prod(shape) * dtype.itemsize
        block = self.block(max(wanted, 1))
        flat = torch.as_tensor(block, device="cuda")[:wanted]
        return flat.view(dtype).view(shape)

    def block(self, nbytes: int) -> Block:
        """The first free stretch that is long enough; its length is rounded up. Raises ArenaFullError."""
        size = -(-nbytes // ALIGNMENT) * ALIGNMENT
        with self._lock:
            self._join_returned()
            for index, (begin, end) in enumerate(self._free):
                if end - begin >= size:
                    rest = (begin + size, end)
                    self._free[index : index + 1] = [rest] if rest[0] < end else []
                    self.peak = max(self.peak, begin + size)
                    return Block(self, begin, size)
            free = sum(end - begin for begin, end in self._free)
        raise ArenaFullError(f"{nbytes} bytes are asked for, {free} of {self.nbytes} are free")

    def release(self, offset: int, nbytes: int) -> None:
        """Note that a block is free; it may come from a garbage collection anywhere, so no lock is taken."""
        self._returned.append((offset, offset + nbytes))

    def _join_returned(self) -> None:
        while self._returned:
            begin, end = self._returned.popleft()
            index = bisect.bisect(self._free, (begin, end))
            if index < len(self._free) and self._free[index][0] == end:
                end = self._free.pop(index)[1]
            if index and self._free[index - 1][1] == begin:
                index -= 1
                begin = self._free.pop(index)[0]
            self._free.insert(index, (begin, end))
