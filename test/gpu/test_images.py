# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
import pytest
import torch


@pytest.mark.parametrize(("views", "height", "width", "patch"), [(2, 224, 224, 16), (1, 30, 60, 5)])
def test_patches(gpu, dtype, views, height, width, patch) -> None:
    def make(t):
        images = t.index(256, views, height, width, 3).to(torch.uint8)
        count = views * height * width // patch**2
        return {"images": images, "patch": patch, "merge": 2, "out": t.out(count, 3 * 2 * patch**2)}

    gpu.check("patches", make, outputs=["out"], dtype=dtype)
