# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np

from flashrt_ros.demo.canvas import GOOD, MIXED
from flashrt_ros.demo.chart import draw_rates


def test_higher_rates_are_drawn_higher() -> None:
    curves = {"good": [(1, 0.9), (2, 1.0)], "bad": [(1, 0.1), (2, 0.4)]}
    picture = np.asarray(draw_rates("title", "tries", curves))[160:]  # below the legend
    heights = [np.flatnonzero(np.all(picture == colour, axis=-1).any(axis=1)) for colour in (GOOD, MIXED)]
    assert all(len(rows) for rows in heights)
    assert heights[0].max() < heights[1].min()
