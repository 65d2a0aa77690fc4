# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How long the policy takes to answer a request for a chunk."""

from __future__ import annotations

from flashrt_ros.policy.durations import Durations

_REMEMBERED = 1000


class LatencyTracker:
    """The newest latencies, from the tick that asked for a chunk to the chunk's arrival.

    The first answer of an epoch is no sample: it stands for warm-up, a restore or a prefill, and not for what the
    next chunk will take. Neither is a re-instated chunk, which nobody computed.
    """

    def __init__(self) -> None:
        self._samples = Durations(_REMEMBERED)
        self._in_stride = False

    @property
    def last(self) -> int:
        """The newest, ns; 0: none yet."""
        return round(self._samples.last * 1e9)

    def restart(self) -> None:
        """Leave the next answer out: an epoch begins, or a request was lost and made again."""
        self._in_stride = False

    def add(self, latency: int, *, computed: bool) -> None:
        """Note an answer that came `latency` ns after its request; `computed`: it was not re-instated."""
        if self._in_stride and computed:
            self._samples.add(latency * 1e-9)
        self._in_stride = True

    def percentiles(self) -> tuple[float, float]:
        """Return the median and the 99th percentile in s; zeros where there is no sample."""
        return self._samples.percentiles()

    def __len__(self) -> int:
        return len(self._samples)
