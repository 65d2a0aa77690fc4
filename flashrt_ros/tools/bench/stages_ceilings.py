# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What this very device can do: copy, read, multiply."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from flashrt_ros.runtime.backend import Backend
from flashrt_ros.tools.bench.stages_clock import Clock, Run

_REPEATS = 15
_STREAM_BLOCK, _STREAM_PIECE = 32 << 10, 16 << 10
"""Bytes that a block of kernels/stream.cu reads, and those of a piece that it brings to shared memory."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Rates of the fastest of some repeats.

    Attributes:
        copy: bytes/s of a copy in one memory, those read and those written both counted.
        read: bytes/s that are read and used for nothing, as weights are streamed.
        multiply: operations/s (2 n^3 of them) of a product of square matrices of random numbers, in `precision`.
        precision: name of that type.
    """

    copy: float
    read: float
    multiply: float
    precision: str

    def seconds(self, nbytes: float, operations: float) -> float:
        """The least time for so many bytes and operations, which go on at once."""
        return max(nbytes / self.read, operations / self.multiply)

    def copying(self, nbytes: float) -> float:
        """The least time to copy so many bytes."""
        return 2 * nbytes / self.copy


def measure_ceilings(backend: Backend, clock: Clock, dtype: torch.dtype) -> Ceilings:
    """Measure the backend's device; the memory for it is given back."""
    copy, read = _move(backend, clock)
    multiply = _multiply(backend, clock, dtype)
    if backend.name == "cuda":
        torch.cuda.empty_cache()
    return Ceilings(copy, read, multiply, str(dtype).removeprefix("torch."))


def _move(backend: Backend, clock: Clock) -> tuple[float, float]:
    gpu = backend.name == "cuda"
    nbytes = 2 << 30 if gpu else 64 << 20
    source = torch.ones(nbytes, dtype=torch.uint8, device=backend.name)
    target = torch.empty_like(source)
    copying = _fastest(clock, lambda: target.copy_(source))
    return 2 * nbytes / copying, nbytes / _read(backend, clock, source, target)


def _multiply(backend: Backend, clock: Clock, dtype: torch.dtype) -> float:
    side = 8192 if backend.name == "cuda" else 512
    a, b = (torch.randn(side, side, device=backend.name).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * side**3 / _fastest(clock, lambda: torch.mm(a, b, out=out))


def _fastest(clock: Clock, work: Run) -> float:
    return min(clock.measure(work, _REPEATS).device)


def _read(backend: Backend, clock: Clock, source: torch.Tensor, unused: torch.Tensor) -> float:
    """Seconds to read a buffer by whatever reads it fastest."""
    if backend.name != "cuda":
        words = source.view(torch.int64)
        return _fastest(clock, lambda: words.sum())
    cuda, nbytes = backend.ops.cuda, np.int64(source.nbytes)
    blocks = source.nbytes // _STREAM_BLOCK
    found = [_fastest(clock, lambda: cuda.launch("stream", "stream", blocks, 256, source, unused))]
    if cuda.capability >= (9, 0):
        grid, ring = cuda.multiprocessors, 8 * _STREAM_PIECE
        arguments = (source, nbytes)
        found.append(_fastest(clock, lambda: cuda.launch("stream", "stream_bulk", grid, 32, *arguments, shared=ring)))
    return min(found)
