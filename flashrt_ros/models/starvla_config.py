# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What StarVLA and the processor of its backbone do around the network, as far as config.json decides it.

Read in starVLA/starVLA at commit 0ed0aad (August 2026) and in transformers 5.24.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flashrt_ros.models.observation import Frames
from flashrt_ros.models.section import Section

CONVENTIONS = ("mean_std", "quantile", "min_max", "none")
"""Of `normalisation`. StarVLA calls quantile q99."""

FIT = "stretch"
"""How images come to `image_size`: Image.resize((224, 224)) of Pillow, which keeps no aspect ratio
(dataloader/gr00t_lerobot/datasets.py:1384 trains so, framework/VLM4A/QwenGR00T.py:245 evaluates so)."""

MIN_PIXELS, MAX_PIXELS = 65536, 16777216
"""`size` in the preprocessor_config.json of every published Qwen3.5: shortest_edge and longest_edge."""

THOUGHTLESS, THOUGHTFUL = (f"<|im_start|>assistant\n<think>\n{rest}" for rest in ("\n</think>\n\n", ""))
"""What Qwen3.5's chat template ends a prompt with if it is told nothing else, as StarVLA tells it nothing
(modules/vlm/QWen3_5.py:144): the former in models up to 2B, the latter from 4B on (huggingface/trl at b03343e,
trl/chat_templates/qwen3_5_nothink.jinja and qwen3_5_think.jinja, which are Qwen's own)."""

_MODES = {"abs": "absolute", "absolute": "absolute", "raw": "absolute", "rel": "delta"}
"""StarVLA's `action_mode`. Its "delta", relative to the row before, is not served."""


@dataclass(frozen=True, slots=True)
class Scales:
    """How numbers are scaled beside `normalisation`, which StarVLA's data configs say key by key, in code.

    state: the convention of the state. raw: names that are not scaled. binary: names that are 0, or 1 above 0.5.
    dataset: whose statistics are meant; empty: those of the only one there is.
    """

    state: str
    raw: tuple[str, ...] = ()
    binary: tuple[str, ...] = ()
    dataset: str = ""


def read_scales(own: Section, layout: str, actions: str, include_state: bool, names: Sequence[str]) -> Scales:
    """Read `state_normalisation`, `raw`, `binary` and `dataset` of the layout "starvla".

    actions: the convention of the actions, and of the state unless given. names: of the state and the actions.
    """
    if layout == "append":
        return Scales(actions)
    exceptions = {key: own.names(key) if key in own.values else () for key in ("raw", "binary")}
    for key, found in exceptions.items():
        if not set(found) <= set(names):
            own.refuse(key, f"some of {', '.join(dict.fromkeys(names))}")
    dataset = own.text("dataset") if "dataset" in own.values else ""
    state = own.choice("state_normalisation", CONVENTIONS, actions)
    return Scales(state if include_state else "none", exceptions["raw"], exceptions["binary"], dataset)


def read_own(root: Section) -> Section:
    """The section `flashrt`; of the layout "starvla" with what `datasets.vla_data` says about the training.

    That section stands beside `framework` in StarVLA's config.yaml. A key of `flashrt` that contradicts it is refused.
    """
    own = root.section("flashrt")
    if own.get("layout", None) != "starvla" or "datasets" not in root.values:
        return own
    trained = _trained(root.section("datasets").section("vla_data"))
    for key, value in trained.items():
        if own.values.get(key, value) != value:
            own.refuse(key, f"{value!r}, as config.json.datasets.vla_data has it")
    return Section({**trained, **own.values}, own.where)


def _trained(data: Section) -> dict[str, Any]:
    """The keys of `flashrt` that StarVLA's config decides.

    Without `include_state` the state is left out, though the head has an encoder for it: `state_dim` is 7 unless given
    otherwise (datasets.py:1400, VLM4A/QwenGR00T.py:93 and :203). An instruction stands in `CoT_prompt`, or by itself
    (modules/vlm/QWen3_5.py:134). `action_mode` "rel" makes all rows relative to the state, "delta" each to the row
    before it (datasets.py:1265); without it the actions are the dataset's, whatever those are.
    """
    # Configs with Python's spelling have a text there.
    include = data.get("include_state", False)
    include = include == "True" if include in ("True", "False") else data.flag("include_state", False)
    found = {"include_state": include, "instruction_template": data.text("CoT_prompt", "{instruction}")}
    if data.get("action_mode", None) is not None:
        found["action_mode"] = _MODES[data.choice("action_mode", _MODES)]
    return found


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
