# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What this very device can do: copy, read, multiply."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flashrt_ros.runtime.backend import Backend
from flashrt_ros.tools.bench.stages_clock import Clock, Run

_REPEATS = 15
_STREAM_THREADS, _STREAM_BLOCKS = 512, 4


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
    words = source.view(torch.int64)
    copying = _fastest(clock, lambda: target.copy_(source))
    reading = _fastest(clock, lambda: _read_on_gpu(backend, source, target) if gpu else words.sum())
    return 2 * nbytes / copying, nbytes / reading


def _multiply(backend: Backend, clock: Clock, dtype: torch.dtype) -> float:
    side = 8192 if backend.name == "cuda" else 512
    a, b = (torch.randn(side, side, device=backend.name).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * side**3 / _fastest(clock, lambda: torch.mm(a, b, out=out))


def _fastest(clock: Clock, work: Run) -> float:
    return min(clock.measure(work, _REPEATS).device)


def _read_on_gpu(backend: Backend, source: torch.Tensor, target: torch.Tensor) -> None:
    cuda = backend.ops.cuda
    vectors = source.nbytes // 16
    cuda.launch("stream", "stream", _STREAM_BLOCKS * cuda.multiprocessors, _STREAM_THREADS, source, vectors, target)
