# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Matrices as the copy engine of sm_90 and later is told of them (CUDA driver API, "Tensor Map Object Management")."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from cuda.bindings import driver

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

_BYTES, _ALIGNMENT = 128, 64
_ROW = 128
"""Bytes of a row of a tile, whose 16-byte parts are exchanged by xor with the row's number."""
_KINDS = {torch.bfloat16: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16}
_PLAIN = driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE
_SWIZZLE = driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B
_PROMOTION = driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B
_ZEROS = driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE


class TensorMap:
    """A matrix in device memory that is cut into tiles of so many rows, 128 bytes wide; an argument of a kernel."""

    def __init__(self, matrix: torch.Tensor, rows: int) -> None:
        """`matrix` is bfloat16 [n, k], its features side by side; tiles have up to 256 rows.

        Raises:
            TypeError: no tiles of such a matrix can be copied.
        """
        if matrix.dtype not in _KINDS or matrix.stride(1) != 1:
            raise TypeError(f"tiles of a matrix of {matrix.dtype} with strides {matrix.stride()} cannot be copied")
        self._matrix = matrix
        self._rows = rows
        self._memory = ctypes.create_string_buffer(_BYTES + _ALIGNMENT)

    def getPtr(self) -> int:  # noqa: N802
        """The address of its 128 bytes, as cuda.bindings asks for it when it launches a kernel.

        Raises:
            FlashrtError: DEVICE; the driver refuses the matrix.
        """
        matrix, columns = self._matrix, _ROW // self._matrix.element_size()
        return _write(self._memory, matrix, matrix.shape, matrix.stride()[:1], (self._rows, columns))


def encode_tiles(x: torch.Tensor, shape: Sequence[int], strides: Sequence[int], box: Sequence[int]) -> bytes:
    """The 128 bytes that describe bfloat16 tiles of up to five dimensions, rows of 128 bytes of them.

    Args:
        x: where it begins.
        shape: its sizes, the contiguous dimension last.
        strides: elements between neighbours, of each dimension but the last; multiples of 8.
        box: the sizes of a tile, in the order of `shape`; elements outside of the tensor come as zeros.

    Raises:
        FlashrtError: DEVICE; the driver refuses them.
    """
    memory = ctypes.create_string_buffer(_BYTES + _ALIGNMENT)
    return ctypes.string_at(_write(memory, x, shape, strides, box), _BYTES)


def _write(memory: Any, x: torch.Tensor, shape: Sequence[int], strides: Sequence[int], box: Sequence[int]) -> int:
    """Encode into `memory`, and return the address there."""
    size, rank = x.element_size(), len(shape)
    address = -(-ctypes.addressof(memory) // _ALIGNMENT) * _ALIGNMENT
    status = _encode()(
        ctypes.c_void_p(address),
        int(_KINDS[x.dtype]),
        rank,
        ctypes.c_void_p(x.data_ptr()),
        (ctypes.c_uint64 * rank)(*reversed(shape)),
        (ctypes.c_uint64 * (rank - 1))(*(stride * size for stride in reversed(strides))),
        (ctypes.c_uint32 * rank)(*reversed(box)),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        *(int(choice) for choice in (_PLAIN, _SWIZZLE, _PROMOTION, _ZEROS)),
    )
    if status:
        what = f"tiles {tuple(box)} of a tensor {tuple(shape)} at {x.data_ptr():#x}"
        raise FlashrtError(ErrorCode.DEVICE, f"the driver refuses {what}: {driver.CUresult(status).name}")
    return address


@cache
def _encode() -> Any:
    """The driver's function itself: that of cuda.bindings writes into memory which is not aligned as it must be."""
    return ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
