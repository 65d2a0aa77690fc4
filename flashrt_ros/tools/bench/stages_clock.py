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
    """Seconds of each repeat: `device` from the first to the last of the work there, `host` to ask for it."""

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
        """Run `before` and `work` so many times, once more to warm up, and time `work`."""


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
        warm = self._once(work, before, 1)
        self._wait()
        fills = math.ceil(min(2 * warm[2], _LONGEST_HOLD) / self._filling) if self._filling else 1
        timed = [self._once(work, before, fills) for _ in range(repeats)]
        self._wait()
        device = tuple(began.elapsed_time(ended) * 1e-3 for began, ended, _ in timed)
        return Times(device, tuple(host for _, _, host in timed))

    def _once(self, work: Run, before: Run, fills: int) -> tuple[torch.cuda.Event, torch.cuda.Event, float]:
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before()
        for _ in range(fills):
            self._ballast.zero_()
        began.record()
        started = time.perf_counter()
        work()
        host = time.perf_counter() - started
        ended.record()
        return began, ended, host

    def _wait(self) -> None:
        self._backend.fence()


def clock_of(backend: Backend) -> Clock:
    """The clock for a backend."""
    return GpuClock(backend) if backend.name == "cuda" else HostClock()
