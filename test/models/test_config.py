# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Reading config.json strictly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashrt_ros.models.config import read_config
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


@pytest.fixture
def values(tiny: Path) -> dict[str, Any]:
    return json.loads((tiny / "config.json").read_text())


def put(values: dict[str, Any], path: str, value: Any) -> None:
    *sections, key = path.split(".")
    for section in sections:
        values = values[section]
    if value is ...:
        del values[key]
    else:
        values[key] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("text_config", ..., "config.json.text_config: missing"),
        ("text_config.hidden_size", 0, "hidden_size: expected an integer of at least 1, 16777216 at most, found 0"),
        ("text_config.num_hidden_layers", 2**70, "num_hidden_layers: expected an integer of at least 1, 1000 at"),
        ("vision_config.depth", 1001, "depth: expected an integer of at least 1, 1000 at most"),
        ("flashrt.image_size", [2**70, 96], "image_size: expected 2 integers of at least 1, 16777216 at most"),
        ("framework.action_model.action_model_type", [], "action_model_type: expected one of 'DiT-B', 'DiT-L'"),
        ("text_config.hidden_size", "256", "found '256'"),
        ("text_config.hidden_size", True, "found True"),
        ("text_config.rms_norm_eps", -1, "text_config.rms_norm_eps: expected a positive number, found -1"),
        ("text_config.hidden_act", "gelu", "text_config.hidden_act: expected 'silu', the only supported value"),
        ("text_config.attention_bias", True, "text_config.attention_bias: expected False"),
        ("text_config.rope_parameters.rope_type", "yarn", "rope_type: expected 'default'"),
        ("text_config.rope_parameters.mrope_section", [3, 3, 3], "expected a sum of 8, half of the 16 rotary features"),
        ("text_config.layer_types", ["linear_attention"], "layer_types: expected 4 entries"),
        ("text_config.layer_types", ["sliding"] * 4, "layer_types: expected a list of 'linear_attention'"),
        ("text_config.num_key_value_heads", 3, "num_key_value_heads: expected a divisor of the 4 attention heads"),
        ("text_config.linear_num_key_heads", 3, "linear_num_key_heads: expected a divisor of the 4 value heads"),
        ("vision_config.num_position_embeddings", 60, "num_position_embeddings: expected a square number, found 60"),
        ("vision_config.num_heads", 64, "vision_config.num_heads"),
        ("vision_config.out_hidden_size", 128, "out_hidden_size is 128, but text_config.hidden_size is 256"),
        ("image_token_id", 400, "image_token_id: expected a token below text_config.vocab_size 320, found 400"),
        ("framework.name", "QwenOFT", "framework.name: expected 'QwenGR00T'"),
        ("framework.action_model.action_model_type", "DiT-S", "action_model_type: expected one of 'DiT-B', 'DiT-L'"),
        ("framework.action_model.action_dim", 7, "action_dim is 7, but the number of flashrt.action_names is 6"),
        ("framework.action_model.state_dim", 5, "state_dim is 5, but the number of flashrt.state_names is 6"),
        ("framework.action_model.max_seq_len", 8, "max_seq_len: expected at least the action_horizon 16, found 8"),
        (
            "framework.action_model.diffusion_model_cfg.positional_embeddings",
            ...,
            "positional_embeddings: expected None, the only supported value, found nothing",
        ),
        ("framework.action_model.diffusion_model_cfg.activation_fn", "gelu", "expected 'gelu-approximate', the only"),
        ("framework.action_model.diffusion_model_cfg.norm_eps", 1e-6, "norm_eps: expected 1e-05, the only"),
        ("framework.action_model.diffusion_model_cfg.num_attention_heads", 5, "make up the width 192"),
        ("framework.action_model.diffusion_model_cfg.cross_attention_dim", 64, "cross_attention_dim is 64, but"),
        ("flashrt", ..., "config.json.flashrt: missing"),
        ("flashrt.layout", "other", "flashrt.layout: expected one of 'append', 'starvla', found 'other'"),
        ("flashrt.typo", 1, "config.json.flashrt: unknown key typo"),
        ("flashrt.prompt.typo", 1, "config.json.flashrt.prompt: unknown key typo"),
        ("flashrt.image_size", [96, 100], "image_size: expected multiples of 32"),
        ("flashrt.image_size", [96], "image_size: expected 2 integers"),
        ("flashrt.views", ["front", "front"], "views: expected a list of different non-empty printable"),
        ("flashrt.stage_sizes", [100], "stage_sizes: expected sizes up to 64 or multiples of it"),
        ("flashrt.instruction_template", "do it", "instruction_template: expected a text with {instruction}"),
        ("flashrt.absolute_actions", ["tool"], "absolute_actions: expected some of the actions shoulder_pan, should"),
        ("flashrt.trained", 0, "trained: expected true or false, found 0"),
    ],
)
def test_what_does_not_fit_is_named(values: dict[str, Any], path: str, value: Any, message: str) -> None:
    put(values, path, value)
    with pytest.raises(FlashrtError) as caught:
        read_config(values)
    assert caught.value.code == ErrorCode.BAD_CHECKPOINT
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "read"),
    [
        ("framework.action_model.state_dim", ..., lambda c: c.head.state_dim == 0),
        ("framework.action_model.add_pos_embed", False, lambda c: c.head.positions == 0),
        (
            "framework.action_model.diffusion_model_cfg.interleave_self_attention",
            False,
            lambda c: all(map(c.head.crosses, range(4))),
        ),
        (
            "framework.action_model.diffusion_model_cfg.interleave_self_attention",
            ...,
            lambda c: [c.head.crosses(layer) for layer in range(4)] == [True, False] * 2,
        ),
        (
            "framework.action_model.diffusion_model_cfg.use_canonical_forward",
            None,
            lambda c: c.head.interleaved,
        ),
        (
            "framework.action_model.diffusion_model_cfg.use_canonical_forward",
            False,
            lambda c: not c.head.interleaved,
        ),
        (
            "text_config.full_attention_interval",
            2,
            lambda c: [t[:4] for t in c.text.layer_types] == ["line", "full"] * 2,
        ),
        ("flashrt.condition", "all", lambda c: c.capacity == c.condition_capacity == 192),
        ("flashrt.absolute_actions", ["gripper"], lambda c: c.absolute_actions == ("gripper",)),
        ("flashrt.condition", "newest", lambda c: (c.capacity, c.condition_capacity) == (4608, 192)),
    ],
)
def test_what_a_key_means(values: dict[str, Any], path: str, value: Any, read: Callable[[Any], bool]) -> None:
    put(values, path, value)
    assert read(read_config(values))


def test_the_named_sizes_of_the_head_need_no_numbers(values: dict[str, Any]) -> None:
    model = values["framework"]["action_model"]
    for key in ("input_embedding_dim", "attention_head_dim", "num_attention_heads"):
        del model["diffusion_model_cfg"][key]
    model["action_model_type"] = "DiT-L"
    model["future_action_window_size"] = model.pop("action_horizon") - 1
    head = read_config(values).head
    assert (head.width, head.head_dim, head.heads, head.horizon) == (1536, 48, 32, 16)
