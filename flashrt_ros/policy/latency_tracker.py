# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How long the policy takes to answer a request for a chunk."""

from __future__ import annotations

from collections import deque

import numpy as np

_REMEMBERED = 1000


class LatencyTracker:
    """The newest latencies, from the tick that asked for a chunk to the chunk's arrival.

    The first answer of an epoch is no sample: it stands for warm-up, a restore or a prefill, and not for what the
    next chunk will take. Neither is a re-instated chunk, which nobody computed.
    """

    def __init__(self) -> None:
        self.last = 0
        """ns; 0: none yet."""
        self._samples: deque[int] = deque(maxlen=_REMEMBERED)
        self._in_stride = False

    def restart(self) -> None:
        """Leave the next answer out: an epoch begins, or a request was lost and made again."""
        self._in_stride = False

    def add(self, latency: int, *, computed: bool) -> None:
        """Note an answer that came `latency` ns after its request; `computed`: it was not re-instated."""
        if self._in_stride and computed:
            self.last = latency
            self._samples.append(latency)
        self._in_stride = True

    def percentiles(self) -> tuple[float, float]:
        """Return the median and the 99th percentile in s; zeros where there is no sample."""
        if not self._samples:
            return 0.0, 0.0
        middle, tail = np.percentile(np.array(self._samples), (50, 99)) * 1e-9
        return float(middle), float(tail)

    def __len__(self) -> int:
        return len(self._samples)
