# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What StarVLA and the processor of its backbone do around the network, as far as config.json decides it.

Read in starVLA/starVLA at commit 0ed0aad (August 2026) and in transformers 5.24.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from flashrt_ros.models.observation import Frames
from flashrt_ros.models.section import Section

FIT = "stretch"
"""How images come to `image_size`: Image.resize((224, 224)) of Pillow, which keeps no aspect ratio
(dataloader/gr00t_lerobot/datasets.py:1384 trains so, framework/VLM4A/QwenGR00T.py:245 evaluates so)."""

MIN_PIXELS, MAX_PIXELS = 65536, 16777216
"""`size` in the preprocessor_config.json of every published Qwen3.5: shortest_edge and longest_edge."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What a config of StarVLA says of the training; None where there is none.

    include_state: whether the head was given the state.
    """

    include_state: bool | None = None


def read_trained(root: Section) -> Trained:
    """Read `datasets.vla_data`, which StarVLA's config.yaml has beside `framework`, if it has been taken over.

    Without `include_state` there the state is left out, though the head has an encoder for it: `state_dim` is 7 unless
    given otherwise (datasets.py:1400, VLM4A/QwenGR00T.py:93 and :203).
    """
    if "datasets" not in root.values:
        return Trained()
    data = root.section("datasets").section("vla_data")
    # omegaconf keeps what a command line says as it was written there.
    include = {"True": True, "False": False}.get(data.get("include_state", False), data.get("include_state", False))
    if not isinstance(include, bool):
        data.refuse("include_state", "true or false")
    return Trained(include_state=include)


def agree(own: Section, key: str, value: Any, trained: Any) -> None:
    """Refuse a key of `flashrt` that contradicts the training."""
    if trained is not None and value != trained:
        own.refuse(key, f"{trained!r}, as config.json.datasets.vla_data has it")


def read_include_state(own: Section, layout: str, trained: Trained) -> bool:
    """Read `include_state`: unless given, what StarVLA's config says, and false where it says nothing.

    With the layout "append" a head that has an encoder for the state is given it.
    """
    usual = layout == "append" if trained.include_state is None else trained.include_state
    include = own.flag("include_state", usual)
    agree(own, "include_state", include, trained.include_state)
    return include


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
