# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Random numbers: the published vectors, and what is made of them."""

from __future__ import annotations

import math

import pytest
import torch

from flashrt_ros.models.ops import Ops

VECTORS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_philox_gives_the_words_that_its_authors_published(counter, key, expected) -> None:
    out = torch.empty((4, 1), dtype=torch.int64)
    Ops().philox(torch.tensor(counter)[:, None], torch.tensor(key), out)
    assert tuple(out[:, 0].tolist()) == expected


def normals(key: int, act: int, count: int) -> torch.Tensor:
    out = torch.empty(count)
    Ops().normals(torch.tensor([key, act]), out)
    return out


def test_normals_follow_the_documented_mapping() -> None:
    key, act = -5, 2**33 + 7
    words = torch.empty((4, 1), dtype=torch.int64)
    counter = torch.tensor([[1], [7], [2], [0]])
    Ops().philox(counter, torch.tensor([key & 0xFFFFFFFF, (key >> 32) & 0xFFFFFFFF]), words)
    x = [int(word) >> 8 for word in words[:, 0]]
    expected = []
    for first, second in ((x[0], x[1]), (x[2], x[3])):
        radius = math.sqrt(-2 * math.log(1 - first * 2.0**-24))
        angle = 2 * math.pi * second * 2.0**-24
        expected += [radius * math.cos(angle), radius * math.sin(angle)]
    torch.testing.assert_close(normals(key, act, 8)[4:], torch.tensor(expected), rtol=0, atol=1e-6)


def test_normals_are_standard_and_differ_by_key_and_act() -> None:
    a, b, c = normals(1, 0, 20_000), normals(1, 1, 20_000), normals(2, 0, 20_000)
    for sample in (a, b, c):
        assert abs(float(sample.mean())) < 0.03
        assert abs(float(sample.std()) - 1) < 0.03
        assert torch.isfinite(sample).all()
    for left, right in ((a, b), (a, c), (b, c)):
        assert abs(float((left * right).mean())) < 0.03


def test_a_shape_does_not_change_the_sequence() -> None:
    out = torch.empty((3, 5))
    Ops().normals(torch.tensor([9, 4]), out)
    assert torch.equal(out.flatten(), normals(9, 4, 16)[:15])
