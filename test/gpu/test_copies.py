# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
import torch


def test_ranges_are_copied_and_their_neighbours_stay(gpu) -> None:
    from flashrt_ros.runtime.cuda.copies import CHUNK, RANGES, Copier, Copy

    sizes = [16 * (1 + number) for number in range(RANGES)] + [CHUNK, CHUNK + 16, 3 * CHUNK - 16]
    source = torch.randint(256, (sum(sizes) + 16 * len(sizes),), dtype=torch.uint8, device="cuda")
    target, expected = torch.zeros_like(source), torch.zeros_like(source)
    copies, begin = [], 0
    for size in sizes:
        copies.append(Copy(source.data_ptr() + begin, target.data_ptr() + begin, size))
        expected[begin : begin + size] = source[begin : begin + size]
        begin += size + 16
    Copier(gpu.ops.cuda).copy(copies)
    gpu.device.synchronize("in copy")
    assert torch.equal(target, expected)
