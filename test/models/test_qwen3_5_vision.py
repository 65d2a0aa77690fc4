# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The visual tower against transformers, alone, for several sizes of images."""

from __future__ import annotations

import pytest
import torch

from flashrt_ros.models.tiny import write_tiny_checkpoint

CONFIGS = [
    ({}, [96, 96]),
    ({"num_heads": 2, "num_position_embeddings": 36, "depth": 1}, [32, 160]),
    ({"hidden_size": 64, "patch_size": 8, "spatial_merge_size": 3, "intermediate_size": 96}, [72, 48]),
    ({"spatial_merge_size": 1, "temporal_patch_size": 1, "num_position_embeddings": 1}, [16, 48]),
]


@pytest.mark.parametrize(("vision", "image_size"), CONFIGS)
def test_embeddings_equal_those_of_transformers(vision, image_size, tmp_path, live, reference, pixels) -> None:
    folder = write_tiny_checkpoint(tmp_path, seed=5, vision_config=vision, image_size=image_size, condition_rows=512)
    policy, model = live(folder), reference(folder)
    seen = policy.observation(0)
    policy.run(policy.model.observe(seen, torch.arange(3).numpy()))
    images = pixels(seen.images, model.config.vision_config)
    with torch.no_grad():
        theirs = model.model.visual(images["pixel_values"], grid_thw=images["image_grid_thw"]).pooler_output
    ours = policy.buffers["image_embeds"]
    assert theirs.std() > 0.05
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)
