# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How a chunk keeps to the one before it: real-time chunking (Black et al., arXiv 2506.07339) and a prefix lock.

The formulas are those that LeRobot runs: its correction takes the Jacobian of the denoised actions for the identity,
so that nothing is differentiated, and all of it is captured with the steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False, slots=True)
class Guidance:
    """What a chunk is to keep of the one before it.

    target: float32 [horizon, action_width], in the policy's range, row i for the instant of the new chunk's row i.
    weight: float32 [horizon], how hard row i is bent towards it, 0 to 1: real-time chunking.
    locked: how many leading rows are the target's own in every step and at the end; with `prefix_lock` they are at time
        0 in the steps, as training-time real-time chunking has it (Black et al., arXiv 2512.05964).
    """

    target: NDArray[np.float32]
    weight: NDArray[np.float32]
    locked: int = 0

    @property
    def held(self) -> int:
        """How many leading rows are locked, or bent as hard as can be."""
        return self.locked or int(np.count_nonzero(self.weight == 1.0))


def guidance_strength(time: torch.Tensor) -> torch.Tensor:
    """The strength at the times of a chunk's Euler steps, float32 [steps].

    min(steps, (1-s)/s * ((1-s)^2 + s^2) / (1-s)^2) with s = 1 - t. At the bound, one step moves where a row is going to
    onto its target; a higher one would move it beyond. The paper has 5 for its 5 steps, LeRobot 10 for its 10.
    """
    s, bound = 1.0 - time.double(), float(len(time))
    strength = (1 - s) / s * ((1 - s) ** 2 + s**2) / (1 - s) ** 2
    return strength.clamp(max=bound).float()
