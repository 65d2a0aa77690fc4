# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The backbone against transformers: text, images, rotary positions, segments, single tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from flashrt_ros.models.tiny import write_tiny_checkpoint

SMALL = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 96, "head_dim": 32, "linear_key_head_dim": 16}
VISION = {"hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64, "depth": 2}


def rope(*section: int, theta: float = 1e4) -> dict:
    dims = 2 * sum(section)
    factor = dims / SMALL["head_dim"]
    return {
        "rope_type": "default",
        "rope_theta": theta,
        "partial_rotary_factor": factor,
        "mrope_section": list(section),
    }


CONFIGS = {
    "default": ({}, {}, (96, 96)),
    "grouped queries, unlike heads": (
        {
            **SMALL,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "linear_num_key_heads": 3,
            "linear_num_value_heads": 6,
            "linear_value_head_dim": 24,
            "rope_parameters": rope(2, 1, 1),
        },
        VISION,
        (64, 128),
    ),
    "full attention first, equal heads": (
        {
            **SMALL,
            "num_hidden_layers": 5,
            "layer_types": [
                "full_attention",
                "linear_attention",
                "full_attention",
                "linear_attention",
                "linear_attention",
            ],
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "linear_value_head_dim": 16,
            "rms_norm_eps": 1e-5,
            "rope_parameters": rope(4, 2, 2, theta=1e6),
        },
        {**VISION, "num_heads": 4, "num_position_embeddings": 25, "spatial_merge_size": 1},
        (48, 32),
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_equal_those_of_transformers(name, tmp_path, live, reference, pixels) -> None:
    text, vision, image_size = CONFIGS[name]
    head = {"framework": _head(text.get("hidden_size", 256))}
    write_tiny_checkpoint(
        tmp_path,
        seed=3,
        text_config=text,
        vision_config=vision,
        image_size=list(image_size),
        stage_sizes=[64, 24, 1],
        **head,
    )
    policy, model = live(tmp_path), reference(tmp_path)
    hidden, tokens, images = [], [], []
    random = np.random.default_rng(1)
    for round_, count in enumerate((7, 70, 1)):
        instruction = random.integers(0, 250, count)
        seen = policy.observation(round_)
        images.append(seen.images)
        for work, segment in (
            (policy.model.instruct(instruction), policy.model.prompt.instruct(instruction)),
            (policy.model.observe(seen, instruction), policy.model.prompt.observe(instruction)),
        ):
            policy.run(work)
            tokens.append(segment.tokens)
            hidden.append(policy.buffers["condition"][: int(policy.buffers["condition_rows"])].clone())
    ours = torch.cat(hidden) @ policy.buffers["embed_tokens"].t()
    theirs = _forward(model, np.concatenate(tokens), pixels(np.concatenate(images), model.config.vision_config))
    assert theirs.std() > 0.5
    assert (ours - theirs).abs().max() <= 1e-4
    assert int(policy.buffers["rope_delta"]) == int(model.model.rope_deltas)


def test_a_rewritten_turn_gives_what_transformers_gives(tmp_path, live, reference, pixels) -> None:
    write_tiny_checkpoint(tmp_path, layout="starvla", condition="all", condition_rows=256)
    policy, model = live(tmp_path), reference(tmp_path)
    instruction = np.arange(65, 95)
    for round_ in range(2):
        seen = policy.observation(round_)
        policy.run(policy.model.observe(seen, instruction))
    tokens = policy.model.prompt.observe(instruction).tokens
    ours = policy.buffers["condition"][: int(policy.buffers["position"])] @ policy.buffers["embed_tokens"].t()
    theirs = _forward(model, tokens, pixels(seen.images, model.config.vision_config))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)


def _forward(model, tokens, images) -> torch.Tensor:
    ids = torch.from_numpy(tokens)[None]
    kinds = (ids == model.config.image_token_id).int()
    with torch.no_grad():
        return model(input_ids=ids, mm_token_type_ids=kinds, **images).logits[0]


def test_single_rows_give_what_one_stage_gives(tmp_path, live) -> None:
    hidden = []
    for sizes in ([64], [1]):
        write_tiny_checkpoint(tmp_path, stage_sizes=sizes)
        policy = live(tmp_path)
        policy.run(policy.model.instruct(np.arange(40)))
        hidden.append(policy.buffers["condition"].clone())
    torch.testing.assert_close(hidden[0], hidden[1], rtol=0, atol=1e-4)
    assert hidden[0].std() > 0.1


def _head(hidden: int) -> dict:
    from flashrt_ros.models.tiny import _FRAMEWORK

    model = _FRAMEWORK["action_model"]
    dit = {**model["diffusion_model_cfg"], "cross_attention_dim": hidden, "num_layers": 1}
    return {"action_model": {**model, "diffusion_model_cfg": dit}}
