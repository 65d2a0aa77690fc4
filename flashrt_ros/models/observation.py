# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a model is shown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ModelObservation:
    """An observation in the model's own sizes.

    images: uint8 [views, height, width, 3], RGB, in the order of the config's views.
    proprio: float32 [state_dim], normalised, in the order of the config's state_names.
    """

    images: NDArray[np.uint8]
    proprio: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Frames:
    """How a camera's image comes to what a model sees.

    It is brought to `size` (height, width) by `fit`, "pad" with the aspect ratio kept and bars added or "stretch"
    without, and that is stretched to `seen`, which mostly is the same size.
    """

    fit: str
    size: tuple[int, int]
    seen: tuple[int, int]
