# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Products, norms and activations."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from flashrt_ros.models.ops import Ops


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("act", [None, "gelu", "gelu_tanh", "relu", "silu"])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("adds", ["nothing", "other", "itself"])
def test_linear(act, has_bias, adds) -> None:
    functions = {"gelu": F.gelu, "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"), "relu": F.relu, "silu": F.silu}
    x, w, bias, out = random(5, 7), random(4, 7), random(4) if has_bias else None, random(5, 4)
    add = {"nothing": None, "other": random(5, 4) + 1, "itself": out}[adds]
    expected = functions.get(act, lambda y: y)(F.linear(x, w, bias)) + (0 if add is None else add)
    Ops().linear(x, w, out, bias=bias, act=act, add=add)
    torch.testing.assert_close(out, expected)


def test_linear_leaves_rows_alone_that_do_not_count() -> None:
    x, w, out = random(5, 7), random(4, 7), torch.zeros(5, 4)
    x[3:] = torch.nan
    Ops().linear(x, w, out, rows=torch.tensor([3]))
    torch.testing.assert_close(out[:3], x[:3] @ w.t())
    assert not out[3:].any()


def test_norms() -> None:
    x, gain, z, out = random(5, 8), random(8), random(5, 8) + 1, torch.empty(5, 8)
    unit = x / (x.pow(2).mean(-1, keepdim=True) + 1e-3).sqrt()
    standard = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-3).sqrt()
    ops = Ops()
    ops.norm(x, gain, out, 1e-3)
    torch.testing.assert_close(out, gain * unit)
    ops.gated_norm(x, gain, z, out, 1e-3)
    torch.testing.assert_close(out, gain * unit * F.silu(z))
    ops.standardise(x, out, 1e-3)
    torch.testing.assert_close(out, standard)
    ops.layer_norm(x, gain, z[0], out, 1e-3)
    torch.testing.assert_close(out, gain * standard + z[0])


def test_norms_in_bfloat16_compute_in_float32() -> None:
    x, gain = random(5, 256).bfloat16(), random(256)
    out = torch.empty_like(x)
    Ops().norm(x, gain, out, 1e-6)
    exact = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6) * gain
    assert torch.equal(out, exact.bfloat16())


def test_silu_product_and_euler() -> None:
    x, out = random(3, 8), torch.empty(3, 4)
    Ops().silu_product(x, out)
    torch.testing.assert_close(out, F.silu(x[:, :4]) * x[:, 4:])
    Ops().euler(x, x + 1, 0.25, x)
    torch.testing.assert_close(x, random(3, 8) + 0.25 * (random(3, 8) + 1))


@pytest.mark.parametrize(
    ("value", "row", "rows", "flagged"),
    [(torch.nan, 1, 2, True), (torch.inf, 1, 2, True), (torch.nan, 2, 2, False), (1.0, 0, 2, False)],
)
def test_check_finite_sets_its_bit_for_live_rows(value, row, rows, flagged) -> None:
    x, fault = torch.zeros(3, 2), torch.tensor([1], dtype=torch.int32)
    x[row, 1] = value
    Ops().check_finite(x, fault, 2, rows=torch.tensor([rows]))
    assert int(fault) == (5 if flagged else 1)
