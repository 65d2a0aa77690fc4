# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Real-time chunking (Black et al., arXiv 2506.07339): a chunk that goes on from the one in execution."""

from __future__ import annotations

import numpy as np

from flashrt_ros.models.pi0_guidance import Guidance
from flashrt_ros.policy.processing import Processor
from flashrt_ros.runtime.buffers import BufferSet


def continuation(
    b: BufferSet, delay: int, row: int | None, processor: Processor, reference: np.ndarray, lock: int
) -> Guidance | None:
    """What the next chunk is to keep of the planned one; None where none is planned, or all of it has been executed.

    Args:
        b: buffers of the session.
        delay: rows from there on that will have been executed when the next chunk takes over: it is to hold them
            hardest.
        row: of the planned chunk, where the next one's first row stands; None: its cursor.
        processor: of the policy.
        reference: float64 [action_dim], the joints that the next chunk's actions refer to.
        lock: so many of those rows at most are given and kept as they are, and nothing is bent towards the others; 0:
            none is given.
    """
    planned, first = int(b["plan"][0]), int(b["plan"][1]) if row is None else row
    old = b["chunk"].cpu().numpy()
    left = len(old) - first
    if not planned or left <= 0:
        return None
    target = np.zeros_like(old)
    target[:left] = processor.rebased(old[first:], b["reference"].numpy(), reference)
    held = min(delay, left)
    if lock:
        return Guidance(target, np.zeros(len(old), np.float32), min(held, lock))
    return Guidance(target, weights(len(old), held, left))


def weights(horizon: int, delay: int, end: int) -> np.ndarray:
    """How hard each row is held, float32 [horizon]: 1 up to `delay`, then falling in a line to `end`, 0 behind."""
    row = np.arange(horizon)
    falling = (end - row) / (end - delay + 1)
    return np.where(row < delay, 1.0, np.where(row < end, falling, 0.0)).astype(np.float32)
