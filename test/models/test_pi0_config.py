# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import pytest

from flashrt_ros.models.pi0_config import GemmaConfig, SiglipConfig, read_pi0
from flashrt_ros.runtime.errors import FlashrtError

OPENPI = {
    "action_dim": 32,
    "action_horizon": 15,
    "paligemma_variant": "gemma_2b",
    "action_expert_variant": "gemma_300m",
    "precision": "bfloat16",
}
IMAGE = {"type": "VISUAL", "shape": [3, 224, 224]}
LEROBOT = {
    "type": "pi05",
    "dtype": "bfloat16",
    "chunk_size": 50,
    "max_action_dim": 32,
    "max_state_dim": 32,
    "num_inference_steps": 5,
    "tokenizer_max_length": 200,
    "image_resolution": [224, 224],
    "normalization_mapping": {"VISUAL": "IDENTITY", "STATE": "QUANTILES", "ACTION": "QUANTILES"},
    "input_features": {
        "observation.images.top": IMAGE,
        "observation.images.wrist": IMAGE,
        "observation.images.empty_camera_0": IMAGE,
        "observation.state": {"type": "STATE", "shape": [7]},
    },
    "output_features": {"action": {"type": "ACTION", "shape": [8]}},
}


def test_what_openpis_converter_writes() -> None:
    config = read_pi0(OPENPI, {}, adaptive=False, widths=(14, 7))
    assert config.language == GemmaConfig(width=2048, depth=18, mlp_width=16384, heads=8, kv_heads=1, head_dim=256)
    assert config.expert == GemmaConfig(width=1024, depth=18, mlp_width=4096, heads=8, kv_heads=1, head_dim=256)
    assert config.vision == SiglipConfig(width=1152, depth=27, mlp_width=4304, heads=16, patch=14)
    assert (config.horizon, config.steps, config.vocab_size) == (15, 10, 257152)
    assert (config.normalisation, config.convention) == ("mean_std", "openpi")
    assert (config.state_dim, config.action_dim, config.action_names[-1]) == (14, 7, "action_6")
    assert (config.image_rows, config.max_rows) == (3 * 256, 3 * 256 + 48 + 1)
    assert config.accumulated_time
    adaptive = read_pi0(OPENPI, {}, adaptive=True)
    assert (adaptive.normalisation, adaptive.max_instruction_tokens, adaptive.max_rows) == ("quantile", 200, 968)


def test_what_lerobot_writes() -> None:
    config = read_pi0(LEROBOT, {"action_names": list("abcdefgh"), "time": "exact"}, adaptive=True)
    assert config.views == ("top", "wrist")  # an empty camera is masked, and so left out
    assert (config.state_dim, config.action_names) == (7, tuple("abcdefgh"))
    assert (config.horizon, config.steps, config.max_instruction_tokens) == (50, 5, 200)
    assert (config.normalisation, config.convention) == ("quantile", "lerobot")
    assert not config.accumulated_time


def test_cameras_that_are_not_there_are_left_out() -> None:
    there = ["right_wrist_0_rgb", "base_0_rgb"]
    assert read_pi0(OPENPI, {}, False, views=there).views == ("base_0_rgb", "right_wrist_0_rgb")
    # Names that the checkpoint does not know are for who compares it with the contract.
    assert len(read_pi0(OPENPI, {}, False, views=["front"]).views) == 3


@pytest.mark.parametrize(
    ("values", "extra", "named"),
    [
        ({**OPENPI, "type": "pi05"}, {}, "config.json says pi05, but the tensors are of pi0"),
        ({**OPENPI, "pi05": True}, {}, "config.json says pi05"),
        ({}, {}, "give action_horizon or chunk_size"),
        (
            {**OPENPI, "paligemma_variant": "gemma_7b"},
            {},
            "paligemma_variant: expected one of 'gemma_2b'",
        ),
        ({**OPENPI, "image_resolution": [224, 225]}, {}, "image_resolution: expected multiples of the patch size 14"),
        (OPENPI, {"state_names": [str(i) for i in range(33)]}, "state_names: expected at most the 32"),
        (OPENPI, {"prompt_sizes": [16, 64]}, "prompt_sizes: expected sizes up to the 48 tokens"),
        (OPENPI, {"colour": 1}, "flashrt.json: unknown key colour"),
        (
            {**LEROBOT, "type": "pi0", "normalization_mapping": {"STATE": "MEAN_STD", "ACTION": "QUANTILES"}},
            {},
            "normalization_mapping.ACTION: expected MEAN_STD, as for STATE, found 'QUANTILES'",
        ),
    ],
)
def test_a_contradiction_is_refused(values: dict[str, Any], extra: dict[str, Any], named: str) -> None:
    with pytest.raises(FlashrtError) as caught:
        read_pi0(values, extra, adaptive=False)
    assert named in str(caught.value)
