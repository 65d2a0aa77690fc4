# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Choosing tokens, and moving states past the rows that hold."""

from __future__ import annotations

import pytest
import torch

from flashrt_ros.models.ops import Ops

OPS = Ops()


def integers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


def test_the_lowest_of_equal_values_is_chosen() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0], [-2.0, -5.0, -2.0], [0.0, 1.0, 2.0]])
    out = integers(-1, -1, -1)
    OPS.argmax(x, out)
    assert out.tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    ("tokens", "chosen", "length", "stops", "accepted"),
    [
        ((5, 6, 7), (6, 7, 8), 3, (-1, -1), 3),
        ((5, 6, 7), (6, 9, 7), 3, (-1, -1), 2),
        ((5, 6, 7), (9, 7, 8), 3, (-1, -1), 1),
        ((5, 6, 7), (6, 7, 8), 2, (-1, -1), 2),
        ((5, 6, 7), (6, 7, 8), 1, (-1, -1), 1),
        ((5, 6, 7), (6, 7, 8), 3, (9, 5), 1),
        ((5, 6, 7), (6, 7, 8), 3, (6, -1), 2),
        ((5, 6, 7), (6, 7, 8), 3, (7, -1), 3),
        ((5,), (6,), 1, (5, -1), 1),
    ],
)
def test_drafts_hold_up_to_the_first_wrong_one_or_a_stop(tokens, chosen, length, stops, accepted) -> None:
    count, last = integers(-1), integers(-1)
    OPS.accept(integers(*tokens), integers(*chosen), integers(length), integers(*stops), count, last)
    assert (int(count), int(last)) == (accepted, accepted - 1)


def test_the_last_row_of_none_is_zero() -> None:
    table, out = torch.rand(3, 4), torch.full((1, 4), torch.nan)
    OPS.last_row(table, integers(2), out)
    assert torch.equal(out[0], table[1])
    OPS.last_row(table, integers(0), out)
    assert torch.equal(out, torch.zeros(1, 4))


@pytest.mark.parametrize("accepted", [1, 2, 5])
def test_offered_rows_give_what_appended_ones_give_and_move_no_state(accepted: int) -> None:
    torch.manual_seed(accepted)
    n, k_heads, v_heads, dk, dv, width, taps = 5, 2, 4, 8, 6, 20, 4
    q, k, v = torch.randn(n, k_heads, dk), torch.randn(n, k_heads, dk), torch.randn(n, v_heads, dv)
    beta, g = torch.rand(n, v_heads), -torch.rand(n, v_heads)
    x, w = torch.randn(n, width), torch.randn(taps, width)
    recurrent, conv = torch.randn(v_heads, dk, dv), torch.randn(taps - 1, width)
    expected, y = torch.empty(n, v_heads, dv), torch.full((n, v_heads, dv), torch.nan)
    smooth, z = torch.empty(n, width), torch.full((n, width), torch.nan)
    before, after = (recurrent.clone(), conv.clone()), (recurrent.clone(), conv.clone())
    OPS.offer_delta(q, k, v, beta, g, recurrent, y)
    OPS.offer_conv(x, w, conv, z)
    assert torch.equal(recurrent, before[0])
    assert torch.equal(conv, before[1])
    OPS.delta_rule(q, k, v, beta, g, after[0], integers(accepted), expected)
    OPS.causal_conv(x, w, after[1], integers(accepted), smooth)
    torch.testing.assert_close(y[:accepted], expected[:accepted])
    assert torch.equal(z, smooth)
    for rows in (k, v, beta, g, x):
        rows[accepted:] = torch.nan
    OPS.keep_delta(k, v, beta, g, recurrent, integers(accepted))
    OPS.keep_conv(x, conv, integers(accepted))
    torch.testing.assert_close(recurrent, after[0])
    assert torch.equal(conv, after[1])


def test_an_offered_row_does_not_depend_on_how_many_are_offered_behind_it() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(4, 2, 8) for _ in range(3))
    beta, g, state = torch.rand(4, 2), -torch.rand(4, 2), torch.randn(2, 8, 8)
    whole, fewer = torch.empty(4, 2, 8), torch.empty(2, 2, 8)
    OPS.offer_delta(q, k, v, beta, g, state, whole)
    OPS.offer_delta(q[:2], k[:2], v[:2], beta[:2], g[:2], state, fewer)
    assert torch.equal(whole[:2], fewer)
