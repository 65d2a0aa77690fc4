# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How checkpoint tensors become weight buffers, whatever the policy."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from flashrt_ros.models import weights
from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.weights import Part, load, weight
from flashrt_ros.runtime.buffers import BufferSet


@pytest.mark.parametrize("transform", [None, lambda rows: 3 * rows])
def test_large_tensors_are_converted_in_pieces(transform, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_PIECE", 100)
    tensor = torch.randn(37, 30)
    pieces = list(Part("table", (37, 30), transform, by_rows=True).pieces(tensor, tensor))
    assert max(piece.numel() for piece in pieces) <= 100
    assert torch.equal(torch.cat(pieces), tensor if transform is None else 3 * tensor)


def test_a_part_is_transformed_before_it_is_rounded() -> None:
    third = torch.full((2, 2), 1 / 3, dtype=torch.bfloat16)
    for by_rows in (True, False):
        (piece,) = Part("table", (2, 2), lambda w: 7 * w, by_rows).pieces(third, third)
        assert torch.equal(piece, 7 * third.float())


def test_parts_are_stacked_and_the_part_that_is_done_is_told(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(3, 4), "b": torch.randn(1, 4), "c": torch.randn(12)}
    save_file(tensors, tmp_path / "model.safetensors")
    wanted = [
        weight("ab", torch.float32, Part("a", (3, 4)), Part("b", (1, 4), lambda w: w + 1)),
        weight("c", torch.bfloat16, Part("c", (12,))),
    ]
    buffers = BufferSet((item.buffer for item in wanted), lambda nbytes, memory: torch.zeros(nbytes, dtype=torch.uint8))
    told: list[float] = []
    load(wanted, Checkpoint(tmp_path), buffers, told.append)
    assert told == pytest.approx([12 / 28, 16 / 28, 1.0])
    assert torch.equal(buffers["ab"], torch.cat((tensors["a"], tensors["b"] + 1)))
    assert torch.equal(buffers["c"], tensors["c"].bfloat16())
