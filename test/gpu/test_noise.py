# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from flashrt_ros.models.ops import Ops


def test_words_are_those_of_the_cpu(gpu) -> None:
    generator = torch.Generator().manual_seed(0)
    counter, key = (torch.randint(2**32, size, generator=generator) for size in ((4, 1001), (2,)))
    expected, found = torch.empty_like(counter), torch.empty_like(counter).cuda()
    Ops().philox(counter, key, expected)
    gpu.ops.philox(counter.cuda(), key.cuda(), found)
    gpu.device.synchronize("in philox")
    assert torch.equal(found.cpu(), expected)


@pytest.mark.parametrize("shape", [(16, 7), (5,), (100_003,)])
@pytest.mark.parametrize("key", [7, -(2**63) + 12345])
def test_normals_are_those_of_the_cpu(gpu, shape, key) -> None:
    generator = torch.tensor([key, 2**33 + 5])
    expected, found = torch.empty(shape), torch.full(shape, float("nan"), device="cuda")
    Ops().normals(generator, expected)
    gpu.ops.normals(generator.cuda(), found)
    gpu.device.synchronize("in normals")
    assert float((found.cpu() - expected).abs().max()) <= 1e-6
