# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How long work takes on a device, apart from how long the host takes to ask for it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from flashrt_ros.runtime.backend import Backend

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of each repeat: `device` from the first to the last of the work there, `host` to ask for it.

    They are of different repeats: the host asks an idle device, so that it waits for nothing.
    """

    device: tuple[float, ...]
    host: tuple[float, ...]

    @property
    def p50(self) -> float:
        """The middle of the device's times."""
        return float(np.percentile(self.device, 50))

    @property
    def p99(self) -> float:
        """What one in a hundred of the device's times exceeds."""
        return float(np.percentile(self.device, 99))

    @property
    def host_p50(self) -> float:
        """The middle of the host's times."""
        return float(np.percentile(self.host, 50))


class Clock(Protocol):
    """Measures work on one device."""

    def measure(self, work: Run, repeats: int, before: Run = ...) -> Times:
        """Run `before` and `work` so many times, after some to warm up, and time `work`."""


def nothing() -> None:
    """What is done before work that needs no preparation."""


class HostClock:
    """For a CPU, where host and device are one."""

    def measure(self, work: Run, repeats: int, before: Run = nothing) -> Times:
        """As Clock."""
        found = []
        for _ in range(repeats + 1):
            before()
            started = time.perf_counter()
            work()
            found.append(time.perf_counter() - started)
        return Times(tuple(found[1:]), tuple(found[1:]))


_BALLAST = 512 << 20
_LONGEST_HOLD = 4e-3
_HOST_REPEATS = 10


class GpuClock:
    """Times by events on the backend's stream.

    The stream is kept busy while the host asks, so that a gap in the device's time is one that the device makes. What
    keeps it busy is the filling of a buffer larger than the cache, so the work finds nothing of itself there.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._ballast = torch.empty(_BALLAST, dtype=torch.uint8, device="cuda")
        self._filling = 0.0
        fills = self.measure(lambda: self._ballast.zero_(), 5)
        self._filling = fills.p50

    def measure(self, work: Run, repeats: int, before: Run = nothing) -> Times:
        """As Clock."""
        host = [self._ask(work, before) for _ in range(1 + min(repeats, _HOST_REPEATS))]
        longest = min(2 * host[-1], _LONGEST_HOLD)
        fills = math.ceil(longest / self._filling) if self._filling else 1
        timed = [self._enqueue(work, before, fills) for _ in range(repeats)]
        self._backend.fence()
        return Times(tuple(began.elapsed_time(ended) * 1e-3 for began, ended in timed), tuple(host[1:]))

    def _ask(self, work: Run, before: Run) -> float:
        before()
        self._backend.fence()
        started = time.perf_counter()
        work()
        asked = time.perf_counter() - started
        self._backend.fence()
        return asked

    def _enqueue(self, work: Run, before: Run, fills: int) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before()
        for _ in range(fills):
            self._ballast.zero_()
        began.record()
        work()
        ended.record()
        return began, ended


def clock_of(backend: Backend) -> Clock:
    """The clock for a backend."""
    return GpuClock(backend) if backend.name == "cuda" else HostClock()
