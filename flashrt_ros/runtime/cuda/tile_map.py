# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Matrices as the copy engine of sm_90 and later is told of them (CUDA driver API, "Tensor Map Object Management")."""

from __future__ import annotations

import ctypes
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
        matrix, size = self._matrix, self._matrix.element_size()
        address = -(-ctypes.addressof(self._memory) // _ALIGNMENT) * _ALIGNMENT
        status = _encode()(
            ctypes.c_void_p(address),
            int(_KINDS[matrix.dtype]),
            2,
            ctypes.c_void_p(matrix.data_ptr()),
            (ctypes.c_uint64 * 2)(matrix.shape[1], matrix.shape[0]),
            (ctypes.c_uint64 * 1)(matrix.stride(0) * size),
            (ctypes.c_uint32 * 2)(_ROW // size, self._rows),
            (ctypes.c_uint32 * 2)(1, 1),
            *(int(choice) for choice in (_PLAIN, _SWIZZLE, _PROMOTION, _ZEROS)),
        )
        if status:
            what = f"tiles of {self._rows} rows of a matrix {tuple(matrix.shape)} at {matrix.data_ptr():#x}"
            raise FlashrtError(ErrorCode.DEVICE, f"the driver refuses {what}: {driver.CUresult(status).name}")
        return address


@cache
def _encode() -> Any:
    """The driver's function itself: that of cuda.bindings writes into memory which is not aligned as it must be."""
    return ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
