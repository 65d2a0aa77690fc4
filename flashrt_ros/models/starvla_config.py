# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What StarVLA and the processor of its backbone do around the network, as far as config.json decides it.

Read in starVLA/starVLA at commit 0ed0aad (August 2026) and in transformers 5.24.
"""

from __future__ import annotations

import math

from flashrt_ros.models.observation import Frames
from flashrt_ros.models.section import Section

FIT = "stretch"
"""How images come to `image_size`: Image.resize((224, 224)) of Pillow, which keeps no aspect ratio
(dataloader/gr00t_lerobot/datasets.py:1384 trains so, framework/VLM4A/QwenGR00T.py:245 evaluates so)."""

MIN_PIXELS, MAX_PIXELS = 65536, 16777216
"""`size` in the preprocessor_config.json of every published Qwen3.5: shortest_edge and longest_edge."""


def read_frames(own: Section, layout: str, unit: int) -> Frames:
    """Read `image_size`, and `fit`, `min_pixels` and `max_pixels` of the layout "starvla".

    unit: pixels on a side that become one row, patch_size times spatial_merge_size.
    """
    height, width = own.integers("image_size", count=2)
    if layout == "append":
        if height % unit or width % unit:
            own.refuse("image_size", f"multiples of {unit} (patch_size times spatial_merge_size)")
        return Frames("pad", (height, width), (height, width))
    fit = own.choice("fit", ("stretch", "pad"), default=FIT)
    smallest = own.integer("min_pixels", default=MIN_PIXELS)
    largest = own.integer("max_pixels", minimum=smallest, default=MAX_PIXELS)
    return Frames(fit, (height, width), processed_size((height, width), unit, smallest, largest))


def processed_size(size: tuple[int, int], unit: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """(height, width) that Qwen's image processor makes of an image (smart_resize in image_processing_qwen2_vl.py).

    Sides are rounded to multiples of `unit`, down where there would be more than `max_pixels`, up where there would be
    fewer than `min_pixels`: StarVLA's 224x224 becomes 256x256, 64 rows in place of 49.
    """
    rounded = tuple(round(side / unit) * unit for side in size)
    pixels = math.prod(size)
    if math.prod(rounded) > max_pixels:
        shrink = math.sqrt(pixels / max_pixels)
        rounded = tuple(max(unit, math.floor(side / shrink / unit) * unit) for side in size)
    elif math.prod(rounded) < min_pixels:
        grow = math.sqrt(min_pixels / pixels)
        rounded = tuple(math.ceil(side * grow / unit) * unit for side in size)
    return rounded[0], rounded[1]
