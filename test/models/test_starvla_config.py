# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What StarVLA and Qwen's processor do around the network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashrt_ros.models.config import HybridConfig, read_config
from flashrt_ros.models.observation import Frames
from flashrt_ros.models.starvla_config import MAX_PIXELS, MIN_PIXELS, Scales, processed_size
from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.runtime.errors import FlashrtError


@pytest.fixture
def read(tmp_path: Path):
    write_tiny_checkpoint(tmp_path, layout="starvla")
    written = json.loads((tmp_path / "config.json").read_text())
    for key in ("min_pixels", "include_state"):
        del written["flashrt"][key]

    def read(datasets: Any = None, **own: Any) -> HybridConfig:
        values = written if datasets is None else {**written, "datasets": {"vla_data": datasets}}
        changed = {key: value for key, value in {**values["flashrt"], **own}.items() if value is not ...}
        return read_config({**values, "flashrt": changed})

    return read


def test_images_are_stretched_and_then_enlarged_as_the_processor_does(read) -> None:
    assert read(image_size=[224, 224]).frames == Frames("stretch", (224, 224), (256, 256))
    padded = read(image_size=[224, 224], fit="pad", min_pixels=1)
    assert padded.frames == Frames("pad", (224, 224), (224, 224))
    assert padded.image_size == (224, 224)
    assert padded.antialias
    assert read(image_size=[512, 512], max_pixels=MIN_PIXELS).image_size == (256, 256)


def test_what_no_processor_does_is_refused(read, tiny: Path) -> None:
    with pytest.raises(FlashrtError, match="max_pixels: expected an integer of at least 65536"):
        read(max_pixels=1000)
    with pytest.raises(FlashrtError, match="fit: expected one of 'stretch', 'pad', found 'crop'"):
        read(fit="crop")
    append = json.loads((tiny / "config.json").read_text())
    append["flashrt"]["fit"] = "stretch"
    with pytest.raises(FlashrtError, match="unknown key fit"):
        read_config(append)


def test_the_head_is_given_the_state_where_it_was_in_training(read, tiny: Path) -> None:
    assert not read().head.state_token
    assert not read({"data_mix": "libero_all"}).head.state_token
    assert not read({"include_state": "False"}).head.state_token
    assert read({"include_state": True}).head.state_token
    assert read(include_state=True).head.state_token
    assert not read(state_names=["lift"]).head.state_token  # an encoder of six numbers lies idle
    assert read_config(json.loads((tiny / "config.json").read_text())).head.state_token
    with pytest.raises(FlashrtError, match=r"state_dim is 6, but the number of flashrt\.state_names is 1"):
        read(state_names=["lift"], include_state=True)


def test_prompt_and_action_mode_are_those_of_the_training(read) -> None:
    asked = "Your task is {instruction}. Locate."
    config = read({"CoT_prompt": asked, "action_mode": "rel"}, instruction_template=..., action_mode=...)
    assert (config.instruction_template, config.action_mode) == (asked, "delta")
    assert read({"action_mode": "abs"}, action_mode=...).action_mode == "absolute"
    assert read({}, instruction_template=...).instruction_template == "{instruction}"
    assert read({"action_mode": None}, action_mode="delta").action_mode == "delta"


def test_a_state_that_is_not_given_is_not_scaled(read) -> None:
    own = {"normalisation": "min_max", "raw": ["gripper"], "binary": ["elbow"], "dataset": "arm"}
    assert read(include_state=True, **own).scales == Scales("min_max", ("gripper",), ("elbow",), "arm")
    assert read(include_state=True, state_normalisation="none").scales.state == "none"
    assert read(state_normalisation="quantile").scales.state == "none"
    with pytest.raises(FlashrtError, match=r"raw: expected some of shoulder_pan, .*, gripper, found \['tool'\]"):
        read(raw=["tool"])


@pytest.mark.parametrize(
    ("data", "own", "message"),
    [
        ({"include_state": 1}, {}, "vla_data.include_state: expected true or false, found 1"),
        ({"include_state": False}, {"include_state": True}, "include_state: expected False, as config.json.datasets"),
        ({}, {"include_state": True}, "include_state: expected False, as config.json.datasets.vla_data has it"),
        (
            {"CoT_prompt": "Do {instruction}."},
            {},
            "template: expected 'Do {instruction}.', as .*, found '{instruction}'",
        ),
        ({"action_mode": "rel"}, {"action_mode": "absolute"}, "action_mode: expected 'delta', as"),
        ({"action_mode": "delta"}, {}, "vla_data.action_mode: expected one of 'abs', 'absolute', 'raw', 'rel', found"),
        ([], {}, "config.json.datasets.vla_data: expected an object"),
    ],
)
def test_what_contradicts_the_training_is_refused(read, data: Any, own: dict[str, Any], message: str) -> None:
    with pytest.raises(FlashrtError, match=message):
        read(data, **own)


def test_sizes_are_those_of_transformers() -> None:
    pil = pytest.importorskip(
        "transformers.models.qwen2_vl.image_processing_pil_qwen2_vl", reason="needs requirements/test.txt"
    )
    random = np.random.default_rng(0)
    sizes = [(224, 224), (96, 96), (8, 300), *random.integers(16, 6000, (200, 2)).tolist()]
    for unit, smallest, largest in ((32, MIN_PIXELS, MAX_PIXELS), (28, 3136, 1003520)):
        theirs = [pil.smart_resize(*size, unit, smallest, largest) for size in sizes]
        assert [processed_size((h, w), unit, smallest, largest) for h, w in sizes] == theirs
