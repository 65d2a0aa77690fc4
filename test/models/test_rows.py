# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Moving rows to where integer buffers say."""

from __future__ import annotations

import torch

from flashrt_ros.models.ops import Ops


def test_embed_reads_live_tokens_and_zeroes_the_padding() -> None:
    out = torch.full((4, 2), torch.nan)
    Ops().embed(torch.tensor([2, 0, -1, 99]), torch.arange(6.0).view(3, 2), torch.tensor([2]), out)
    assert out.tolist() == [[4, 5], [0, 1], [0, 0], [0, 0]]


def test_replace_rows_keeps_rows_without_an_index() -> None:
    source, out = torch.tensor([[1.0], [torch.nan], [3.0]]), torch.tensor([[9.0], [9.0], [9.0]])
    Ops().replace_rows(torch.tensor([2, -1, 0]), source, out)
    assert out.tolist() == [[3], [9], [1]]


def test_write_rows_writes_the_live_rows_at_their_place() -> None:
    out = torch.zeros(5, 1)
    Ops().write_rows(torch.tensor([[1.0], [2.0], [torch.nan]]), torch.tensor([2]), torch.tensor([2]), out)
    assert out[:, 0].tolist() == [0, 0, 1, 2, 0]


def test_take_row() -> None:
    out = torch.empty(2)
    Ops().take_row(torch.arange(6.0).view(3, 2), torch.tensor([1]), out)
    assert out.tolist() == [2, 3]


def test_clear_if_clears_where_the_flag_is_set() -> None:
    tensors = [torch.ones(2), torch.ones(1, dtype=torch.int64)]
    Ops().clear_if(torch.tensor([0]), tensors)
    assert all(tensor.all() for tensor in tensors)
    Ops().clear_if(torch.tensor([1]), tensors)
    assert not any(tensor.any() for tensor in tensors)


def test_advance_keeps_the_rotary_cursor_at_position_plus_delta() -> None:
    position, delta = torch.tensor([10]), torch.tensor([-3])
    Ops().advance(torch.tensor([8]), torch.tensor([2]), position, delta)
    assert (int(position), int(position + delta)) == (18, 9)
