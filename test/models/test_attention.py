# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Softmax attention over a cache and over whole tensors, and the rotary embedding."""

from __future__ import annotations

import pytest
import torch

from flashrt_ros.models.ops import Ops

HEADS, KV_HEADS, WIDTH, CAPACITY = 4, 2, 8, 32


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize(("position", "n", "length"), [(0, 1, 0), (0, 1, 1), (0, 8, 8), (11, 8, 5), (31, 8, 1)])
def test_each_row_sees_the_cache_up_to_itself_and_nothing_else(position: int, n: int, length: int) -> None:
    keys, values = random(CAPACITY, KV_HEADS, WIDTH), random(CAPACITY, KV_HEADS, WIDTH) + 1
    q, gate, out = random(n, HEADS, WIDTH), random(n, HEADS, WIDTH) + 2, torch.empty(n, HEADS * WIDTH)
    keys[position + length :] = torch.nan
    values[position + length :] = torch.nan
    q[length:] = torch.nan
    Ops().attend_cache(q, keys, values, torch.tensor([position]), torch.tensor([length]), gate, out)
    for row in range(length):
        for head in range(HEADS):
            source, seen = head * KV_HEADS // HEADS, position + row + 1
            weights = torch.softmax(keys[:seen, source] @ q[row, head] / WIDTH**0.5, dim=0)
            expected = torch.sigmoid(gate[row, head]) * (weights @ values[:seen, source])
            torch.testing.assert_close(out[row].view(HEADS, WIDTH)[head], expected, rtol=0, atol=1e-5)


def test_only_the_live_keys_count() -> None:
    q, keys, values = random(1, 5, HEADS, WIDTH), random(1, 9, HEADS, WIDTH), random(1, 9, HEADS, WIDTH)
    expected, out = torch.empty_like(q), torch.empty_like(q)
    Ops().attend(q, keys[:, :6], values[:, :6], expected)
    keys[:, 6:], values[:, 6:] = torch.nan, torch.nan
    Ops().attend(q, keys, values, out, rows=torch.tensor([6]))
    assert torch.equal(out, expected)
    weights = torch.softmax(keys[0, :6, 1] @ q[0, 2, 1] / WIDTH**0.5, dim=0)
    torch.testing.assert_close(out[0, 2, 1], weights @ values[0, :6, 1], rtol=0, atol=1e-5)
    Ops().attend(q, keys, values, out, rows=torch.tensor([0]))
    assert not out.any()


def test_rotary_table_takes_each_frequency_from_its_axis() -> None:
    frequency, axis = torch.tensor([1.0, 0.5, 0.25, 0.1]), torch.tensor([0, 1, 2, 0])
    offsets = torch.tensor([[0, 1], [3, 4], [5, 7]])
    cos, sin = torch.empty(2, 4), torch.empty(2, 4)
    Ops().rope_table(torch.tensor([10]), torch.tensor([-4]), offsets, frequency, axis, cos, sin)
    angle = torch.tensor([[6.0, 9 * 0.5, 11 * 0.25, 0.6], [7.0, 10 * 0.5, 13 * 0.25, 0.7]])
    torch.testing.assert_close(cos, angle.cos())
    torch.testing.assert_close(sin, angle.sin())


def test_rope_turns_pairs_and_passes_the_rest() -> None:
    x, out = random(3, 2, 6), torch.empty(3, 2, 6)
    angle = random(3, 2)
    Ops().rope(x, angle.cos(), angle.sin(), out)
    turned = torch.complex(x[..., :2], x[..., 2:4]) * torch.polar(torch.ones_like(angle), angle)[:, None]
    torch.testing.assert_close(out, torch.cat((turned.real, turned.imag, x[..., 4:]), dim=-1))
