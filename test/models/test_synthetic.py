# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from pathlib import Path

import pytest
import torch

from flashrt_ros.models.hybrid import Hybrid
from flashrt_ros.models.synthetic import RandomCheckpoint, write_synthetic


@pytest.mark.parametrize(
    ("size", "text", "row_bytes"),
    [("0.8B", 0.752e9, 12288), ("2B", 1.882e9, 12288)],
)
def test_a_size_has_its_published_shapes(tmp_path: Path, size: str, text: float, row_bytes: int) -> None:
    config = write_synthetic(tmp_path, size)
    tensors = RandomCheckpoint(config)
    model = Hybrid.from_folder(tmp_path, torch.bfloat16, tensors)
    parameters = sum(torch.Size(shape).numel() for name, shape in tensors.shapes.items() if "language_model." in name)
    assert parameters == pytest.approx(text, rel=1e-3)
    buffers = model.buffers()
    assert sum(spec.row_nbytes for spec in buffers if spec.name.startswith("kv.")) == row_bytes
    assert sum(spec.nbytes for spec in buffers if spec.name.startswith("recurrent.")) == 18 * 16 * 128 * 128 * 4
    assert any(spec.name.startswith("mtp.") for spec in buffers)


def test_weights_are_equal_for_equal_seeds_alone(tmp_path: Path) -> None:
    config = write_synthetic(tmp_path, "tiny")
    name, other = (f"language_model.layers.{layer}.mlp.up_proj.weight" for layer in (0, 1))
    weight = RandomCheckpoint(config, seed=1).read(name)
    assert torch.equal(weight, RandomCheckpoint(config, seed=1).read(name))
    assert not torch.equal(weight, RandomCheckpoint(config, seed=2).read(name))
    assert not torch.equal(weight, RandomCheckpoint(config, seed=1).read(other))
    assert tuple(weight.shape) == RandomCheckpoint(config).shapes[name]
