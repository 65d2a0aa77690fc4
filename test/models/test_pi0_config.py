# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import pytest

from flashrt_ros.models.pi0_config import read_pi0
from flashrt_ros.models.pi0_sizes import GemmaConfig, SiglipConfig
from flashrt_ros.runtime.errors import FlashrtError

OPENPI = {
    "action_dim": 32,
    "action_horizon": 15,
    "paligemma_variant": "gemma_2b",
    "action_expert_variant": "gemma_300m",
    "precision": "bfloat16",
}
VISION = {"hidden_size": 48, "intermediate_size": 96, "num_heads": 3, "patch_size": 14}
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
    assert (config.normalisation, config.convention, config.antialias) == ("mean_std", "openpi", True)
    assert (config.state_dim, config.action_dim, config.action_names[-1]) == (14, 7, "action_6")
    assert (config.image_rows, config.max_rows) == (3 * 256, 3 * 256 + 48 + 1)
    assert config.accumulated_time
    adaptive = read_pi0(OPENPI, {}, adaptive=True)
    assert (adaptive.normalisation, adaptive.max_instruction_tokens, adaptive.max_rows) == ("quantile", 200, 968)


def test_what_lerobot_writes() -> None:
    config = read_pi0(LEROBOT, {"action_names": list("abcdefgh")}, adaptive=True)
    assert config.views == ("top", "wrist")  # an empty camera is masked, and so left out
    assert (config.state_dim, config.action_names) == (7, tuple("abcdefgh"))
    assert (config.horizon, config.steps, config.max_instruction_tokens) == (50, 5, 200)
    assert (config.normalisation, config.convention, config.antialias) == ("quantile", "lerobot", False)
    assert not config.accumulated_time


DELTA = {"action_mode": "delta", "state_names": ["pan", "lift"], "action_names": ["pan", "tilt"]}
RELATIVE = {
    **LEROBOT,
    "use_relative_actions": True,
    "relative_exclude_joints": ["Gripper"],
    "action_feature_names": [*(f"joint_{i}.pos" for i in range(7)), "left_gripper.pos"],
}


def test_relative_actions_of_lerobot_are_deltas_but_for_the_excluded_joints() -> None:
    config = read_pi0(RELATIVE, {}, adaptive=True)
    assert (config.action_mode, config.absolute_actions) == ("delta", ("left_gripper.pos",))
    assert config.state_names == config.action_names[:7]  # each is relative to the number of its place
    named = {"action_names": list("abcdefgh"), "state_names": list("abcdefg")}
    assert read_pi0(RELATIVE, named, adaptive=True).absolute_actions == ("h",)
    absolute = read_pi0({**RELATIVE, "use_relative_actions": False}, {}, adaptive=True)
    assert (absolute.action_mode, absolute.absolute_actions) == ("absolute", ())
    assert (absolute.state_names[0], absolute.action_names[0]) == ("state_0", "joint_0.pos")


def test_a_gripper_may_be_absolute_among_deltas() -> None:
    names = {"state_names": ["pan", "lift"], "action_names": ["pan", "grip"]}
    extra = {"action_mode": "delta", "absolute_actions": ["grip"], **names}
    assert read_pi0(OPENPI, extra, adaptive=False).absolute_actions == ("grip",)


def test_rows_can_be_given_where_it_was_trained_so() -> None:
    trained = {**LEROBOT, "rtc_training_max_delay": 5}
    assert read_pi0(LEROBOT, {}, adaptive=True).prefix_lock == 0
    assert read_pi0(LEROBOT, {"prefix_lock": True}, adaptive=True).prefix_lock == 50
    assert read_pi0(trained, {}, adaptive=True).prefix_lock == 5
    assert read_pi0(trained, {"prefix_lock": False}, adaptive=True).prefix_lock == 0


def test_what_no_file_says_is_told() -> None:
    assert "taken as absolute (action_mode)" in " ".join(read_pi0(OPENPI, {}, adaptive=False).assumed)
    assert len(read_pi0(OPENPI, {}, adaptive=True).assumed) == 2
    said = {**OPENPI, "discrete_state_input": False}
    assert read_pi0(said, {"action_mode": "absolute"}, adaptive=True).assumed == ()
    assert read_pi0(said, {}, adaptive=True).state_prompt == "none"
    assert "(state_prompt padded)" in " ".join(read_pi0(LEROBOT, {}, adaptive=True).assumed)
    assert read_pi0(RELATIVE, {}, adaptive=True).assumed == ()


def test_cameras_that_are_not_there_are_left_out() -> None:
    there = ["right_wrist_0_rgb", "base_0_rgb"]
    assert read_pi0(OPENPI, {}, False, views=there).views == ("base_0_rgb", "right_wrist_0_rgb")
    # Names that the checkpoint does not know are for who compares it with the contract.
    assert len(read_pi0(OPENPI, {}, False, views=["front"]).views) == 3


@pytest.mark.parametrize("key", ["top", "observation.images.", "observation.images.a\n", "observation.images.\ud800"])
def test_cameras_of_lerobot_need_names_of_their_own(key: str) -> None:
    features = {**LEROBOT["input_features"], key: IMAGE}
    with pytest.raises(FlashrtError, match="input_features: expected cameras of different printable names"):
        read_pi0({**LEROBOT, "input_features": features}, {}, adaptive=True)


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
        ({**OPENPI, "vision": {**VISION, "num_layers": 1001}}, {}, "num_layers: expected an integer of at least 1,"),
        (OPENPI, {"views": ["a\u202e", "b"]}, "views: expected a list of different non-empty printable strings"),
        (OPENPI, {"prompt_sizes": [16, 64]}, "prompt_sizes: expected sizes up to the 48 tokens"),
        (OPENPI, {"colour": 1}, "flashrt.json: unknown key colour"),
        (OPENPI, {"action_mode": "delta", "absolute_actions": ["x"]}, "absolute_actions: expected some of the actions"),
        ({**LEROBOT, "type": "pi0", "max_period": 10.0}, {}, "max_period: expected 4.0, the only supported value"),
        ({**LEROBOT, "type": "pi0", "use_visual_memory": True}, {}, "use_visual_memory: expected False"),
        (
            {**LEROBOT, "type": "pi0", "rtc_training_max_delay": -1},
            {},
            "rtc_training_max_delay: expected an integer of at least 0",
        ),
        (OPENPI, {"state_prompt": "joints"}, "flashrt.json.state_prompt: expected one of 'none'"),
        (OPENPI, DELTA, "action 1, tilt, is relative to number 1 of the state, lift; in flashrt.json name both alike"),
        (OPENPI, {**DELTA, "state_names": ["pan"]}, "number 1 of the state, which has fewer"),
        (OPENPI, {"absolute_actions": ["action_0"]}, "with action_mode delta"),
        ({**LEROBOT, "type": "pi0", "action_feature_names": ["x"]}, {}, "expected a name for each of the 8 actions"),
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
