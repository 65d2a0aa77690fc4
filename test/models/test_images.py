# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Patches against the image processor of transformers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from flashrt_ros.models.ops import Ops


def test_patches_equal_those_of_transformers(pixels) -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 48, 24, 3), dtype=np.uint8)
    vision = SimpleNamespace(patch_size=4, temporal_patch_size=2, spatial_merge_size=3)
    expected = pixels(images, vision)["pixel_values"]
    out = torch.empty_like(expected)
    Ops().patches(torch.from_numpy(images), 4, 3, out)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-6)
