# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Weights of one byte: how they are made, what products make of them, and pi0 and pi0.5 with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.config import read_json
from flashrt_ros.models.observation import ModelObservation
from flashrt_ros.models.ops import Ops
from flashrt_ros.models.pi0 import Pi0
from flashrt_ros.models.reference.quantised import FP8, dequantised, last_rows, quantise
from flashrt_ros.models.tiny_pi0 import write_tiny_pi0
from flashrt_ros.runtime.backend import CpuBackend
from flashrt_ros.runtime.plan import Plan

EXPERT = "paligemma_with_expert.gemma_expert.model.layers."
PRODUCTS = ("qkv", "out", "gate_up", "down")


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_each_row_fills_the_range_and_is_rounded_to_the_nearest() -> None:
    w = random(6, 40) * torch.tensor([1e-30, 1e-3, 1.0, 50.0, 1e30, 0.0])[:, None]
    found = quantise(w)
    assert found.values.dtype == FP8
    assert found.shape == w.shape
    assert (found.values.float().abs().amax(dim=1)[:5] == 448.0).all()
    assert not dequantised(found)[5].any()
    torch.testing.assert_close(found.scale[:5], w.abs().amax(dim=1)[:5] / 448.0)
    # Three bits behind the leading one, and steps of 2^-9 below 2^-6.
    allowed = torch.maximum(w.abs() / 16, found.scale[:, None] * 2.0**-10)
    assert ((dequantised(found) - w).abs() <= allowed * 1.0001).all()


def test_a_bfloat16_matrix_is_quantised_as_the_float32_one_of_its_values() -> None:
    w = random(5, 24).bfloat16()
    for ours, theirs in zip(quantise(w), quantise(w.float()), strict=True):
        assert torch.equal(ours.float(), theirs.float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_are_those_with_the_dequantised_matrix(dtype: torch.dtype) -> None:
    n, m, k, d = 3, 16, 8, 4
    x, gain, bias, gate = random(n, k).to(dtype), random(2, k), random(2, 2 * m), random(2, m)
    step, start, cos = torch.tensor([1]), torch.tensor([2]), random(8, d // 2, seed=2)
    few, many = quantise(random(m, k, seed=3)), quantise(random(2 * m, k, seed=4))
    found: list[list[Tensor]] = []
    for small, large in ((few, many), tuple(dequantised(w).to(dtype) for w in (few, many))):
        ops, out = Ops(), [random(n, m).to(dtype) for _ in range(4)]
        heads = [torch.zeros(8, 1, d, dtype=dtype) for _ in range(2)]
        q = torch.zeros(n, m // d - 2, d, dtype=dtype)
        ops.normed_linear(x, gain, step, small, out[0], 1e-6, bias[:, :m])
        ops.normed_gelu_linear(x, gain, step, large, out[1], 1e-6, bias)
        ops.linear_gated_add(x, small, step, out[2], gate)
        ops.linear_gated_add(x, small, step, out[3])
        ops.normed_heads(x, gain, step, small, cos, cos, start, q, *heads, 1e-6)
        ops.normed_heads(x, gain, step, last_rows(small, 2 * d), cos, cos, start, None, *heads, 1e-6)
        found.append([*out, q, *heads])
    for ours, theirs in zip(*found, strict=True):
        assert ours.any()
        assert torch.equal(ours, theirs)


def plan_of(folder: Path, fp8: bool) -> tuple[Pi0, Plan]:
    model = Pi0(read_json(folder / "config.json"), {"prompt_sizes": [8], "steps": 4}, Checkpoint(folder), fp8=fp8)
    plan = Plan(CpuBackend(Ops()), model, [], {})
    model.load_weights(plan.buffers)
    plan.capture()
    return model, plan


def chunk_of(folder: Path, fp8: bool) -> Tensor:
    model, plan = plan_of(folder, fp8)
    seen = ModelObservation(np.full((3, 28, 28, 3), 99, np.uint8), np.linspace(-1, 1, 8, dtype=np.float32))
    for step in (*model.observe(seen, np.arange(5)).steps, *model.act().steps):
        plan.run(step)
    assert plan.fence() == ""
    return plan.buffers["chunk"].clone()


@pytest.fixture(params=["pi0", "pi05"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_tiny_pi0(tmp_path, request.param)


def test_a_policy_is_the_one_whose_checkpoint_holds_the_dequantised_weights(folder: Path) -> None:
    plain, found = chunk_of(folder, fp8=False), chunk_of(folder, fp8=True)
    tensors = load_file(folder / "model.safetensors")
    products = [name for name in tensors if name.startswith(EXPERT) and "_proj." in name]
    assert len(products) == 7 * 3
    tensors |= {name: dequantised(quantise(tensors[name])) for name in products}
    save_file(tensors, folder / "model.safetensors")
    assert torch.equal(chunk_of(folder, fp8=False), found)
    assert 0 < (found - plain).abs().max() < 0.2 * plain.abs().max()


def test_the_products_of_the_expert_take_a_byte_a_weight_and_nothing_else_changes(folder: Path) -> None:
    (_, plain), (_, ours) = plan_of(folder, fp8=False), plan_of(folder, fp8=True)
    products = {f"expert.{layer}.{part}" for layer in range(3) for part in PRODUCTS}
    specs = ours.buffers.specs
    assert {name for name, spec in specs.items() if spec.dtype == FP8} == products
    assert specs.keys() - plain.buffers.specs.keys() == {f"{name}.scale" for name in products}
    derived = {name for name in specs if name.startswith("expert.bias.")}
    for name, spec in plain.buffers.specs.items():
        if spec.kind == "weight" and name not in products | derived:
            assert torch.equal(ours.buffers[name], plain.buffers[name]), name
    for name in products:
        assert specs[name].shape == plain.buffers.specs[name].shape
