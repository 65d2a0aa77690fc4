# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""pi0 against transformers, on random weights of other sizes and in 4-way grouped attention."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.config import read_json
from flashrt_ros.models.observation import ModelObservation
from flashrt_ros.models.ops import Ops
from flashrt_ros.models.pi0 import Pi0
from flashrt_ros.runtime.backend import CpuBackend
from flashrt_ros.runtime.plan import Plan

IMAGE_TOKEN = 300
PREFIXES = {
    "model.vlm.vision_tower.": "paligemma_with_expert.paligemma.model.vision_tower.vision_model.",
    "model.vlm.": "paligemma_with_expert.paligemma.model.",
    "model.dit.": "paligemma_with_expert.gemma_expert.model.",
    "embed_action_time.": "",
}


def random_policy(seed: int, kv_heads: int, depth: int) -> Any:
    transformers = pytest.importorskip("transformers", reason="needs requirements/test.txt")
    shared = {"num_hidden_layers": depth, "num_attention_heads": 4, "num_key_value_heads": kv_heads, "head_dim": 16}
    text = {**shared, "model_type": "gemma", "hidden_size": 40, "intermediate_size": 72, "vocab_size": 301}
    vision = {
        "model_type": "siglip_vision_model",
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "patch_size": 8,
        "image_size": 32,
        "vision_use_head": False,
    }
    config = transformers.PI0Config(
        vlm_config={
            "model_type": "paligemma",
            "text_config": text,
            "vision_config": vision,
            "projection_dim": 40,
            "image_token_id": IMAGE_TOKEN,
        },
        dit_config={**shared, "model_type": "gemma", "hidden_size": 28, "intermediate_size": 56, "vocab_size": 301},
        chunk_size=9,
        max_state_dim=7,
        max_action_dim=7,
    )
    torch.manual_seed(seed)
    model = transformers.PI0ForConditionalGeneration(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3 if parameter.dim() == 1 else parameter[0].numel() ** -0.5)
    return model


def write_checkpoint(model: Any, folder: Path, kv_heads: int, depth: int) -> None:
    tensors = {}
    for name, value in model.state_dict().items():
        prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix)), "")
        tensors[PREFIXES.get(prefix, "") + name.removeprefix(prefix)] = value.contiguous()
    tensors.pop("paligemma_with_expert.gemma_expert.model.embed_tokens.weight")
    save_file(tensors, folder / "model.safetensors")
    shared = {"depth": depth, "num_heads": 4, "num_kv_heads": kv_heads, "head_dim": 16}
    config = {
        "type": "pi0",
        "action_dim": 7,
        "action_horizon": 9,
        "max_token_len": 11,
        "image_resolution": [32, 32],
        "vision": {"hidden_size": 24, "intermediate_size": 40, "num_layers": 2, "num_heads": 3, "patch_size": 8},
        "language": {**shared, "width": 40, "mlp_dim": 72, "vocab_size": 301},
        "action_expert": {**shared, "width": 28, "mlp_dim": 56},
    }
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(("seed", "views", "kv_heads", "depth"), [(0, 1, 1, 2), (1, 3, 2, 3)])
def test_chunks_equal_those_of_transformers(seed: int, views: int, kv_heads: int, depth: int, tmp_path: Path) -> None:
    theirs = random_policy(seed, kv_heads, depth)
    write_checkpoint(theirs, tmp_path, kv_heads, depth)
    extra = {"views": [f"camera {index}" for index in range(views)], "steps": 5, "time": "exact"}
    ours = Pi0(read_json(tmp_path / "config.json"), extra, Checkpoint(tmp_path))
    plan = Plan(CpuBackend(Ops()), ours, [], {})
    ours.load_weights(plan.buffers)
    plan.capture()
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (views, 32, 32, 3), dtype=np.uint8)
    state, tokens = random.normal(size=7).astype(np.float32), random.integers(0, 300, 8)
    for step in (*ours.observe(ModelObservation(images, state), tokens).steps, *ours.act().steps):
        plan.run(step)
    assert plan.fence() == ""
    noise = torch.empty(1, 9, 7)
    Ops().normals(torch.zeros(2, dtype=torch.int64), noise)
    ids = torch.cat((torch.full((views * 16,), IMAGE_TOKEN), torch.from_numpy(tokens)))[None]
    expected = theirs.sample_actions(
        state=torch.from_numpy(state)[None],
        input_ids=ids,
        pixel_values=torch.from_numpy(images).permute(0, 3, 1, 2)[None] / 127.5 - 1,
        noise=noise,
        attention_mask=torch.ones_like(ids),
        pixel_attention_mask=torch.ones(1, views, dtype=torch.bool),
        num_steps=5,
    )
    torch.testing.assert_close(plan.buffers["chunk"], expected[0], rtol=0, atol=1e-4)
