# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Descriptions of tensors for the copy engine that fetches tiles of them (sm_90 and later)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from cuda.bindings import driver
from torch import Tensor

from flashrt_ros.runtime.cuda.driver import check

NBYTES = 128


def encode_tiles(x: Tensor, shape: Sequence[int], strides: Sequence[int], box: Sequence[int]) -> bytes:
    """Describe a bfloat16 tensor whose tiles land as rows of 64 elements, exchanged as kernels/warpgroup.cuh says.

    Args:
        x: where it begins.
        shape: its sizes, the contiguous dimension last.
        strides: elements between neighbours, of each dimension but the last; multiples of 8.
        box: the sizes of a tile, in the order of `shape`; elements outside of the tensor come as zeros.
    """
    inward = range(len(shape) - 1, -1, -1)
    encoded = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        len(shape),
        x.data_ptr(),
        [driver.cuuint64_t(shape[i]) for i in inward],
        [driver.cuuint64_t(strides[i] * x.element_size()) for i in inward[1:]],
        [driver.cuuint32_t(box[i]) for i in inward],
        [driver.cuuint32_t(1)] * len(shape),
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    found = check(encoded, f"describing tiles {tuple(box)} of a tensor {tuple(shape)}")
    return ctypes.string_at(int(found.getPtr()), NBYTES)
