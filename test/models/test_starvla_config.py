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
from flashrt_ros.models.starvla_config import MAX_PIXELS, MIN_PIXELS, processed_size
from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.runtime.errors import FlashrtError


@pytest.fixture
def read(tmp_path: Path):
    write_tiny_checkpoint(tmp_path, layout="starvla")
    written = json.loads((tmp_path / "config.json").read_text())
    del written["flashrt"]["min_pixels"]

    def read(datasets: Any = None, **own: Any) -> HybridConfig:
        values = written if datasets is None else {**written, "datasets": {"vla_data": datasets}}
        return read_config({**values, "flashrt": {**values["flashrt"], **own}})

    return read


def test_images_are_stretched_and_then_enlarged_as_the_processor_does(read) -> None:
    assert read(image_size=[224, 224]).frames == Frames("stretch", (224, 224), (256, 256))
    padded = read(image_size=[224, 224], fit="pad", min_pixels=1)
    assert padded.frames == Frames("pad", (224, 224), (224, 224))
    assert padded.image_size == (224, 224)
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


def test_sizes_are_those_of_transformers() -> None:
    pil = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    random = np.random.default_rng(0)
    sizes = [(224, 224), (96, 96), (8, 300), *random.integers(16, 6000, (200, 2)).tolist()]
    for unit, smallest, largest in ((32, MIN_PIXELS, MAX_PIXELS), (28, 3136, 1003520)):
        theirs = [pil.smart_resize(*size, unit, smallest, largest) for size in sizes]
        assert [processed_size((h, w), unit, smallest, largest) for h, w in sizes] == theirs
