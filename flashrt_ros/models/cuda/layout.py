# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which variant of a kernel fits its tensors, and how their rows lie."""

from __future__ import annotations

import torch
from torch import Tensor

ACCESS = 16
"""Bytes that a thread reads or writes at once where addresses, strides and widths allow it."""

WARP = 32

_NAMES = {torch.float32: "f32", torch.bfloat16: "bf16"}


def ceil_div(count: int, size: int) -> int:
    """The number of pieces of `size` that cover `count`."""
    return -(-count // size)


def threads_for(count: int, most: int = 1024) -> int:
    """Whole warps for `count` threads, up to `most`."""
    return min(most, ceil_div(count, WARP) * WARP)


def type_name(op: str, *tensors: Tensor) -> str:
    """What kernels for the one type of `tensors` are called.

    Raises:
        TypeError: the types differ, no kernel is built for them, or features do not lie side by side.
    """
    types = {tensor.dtype for tensor in tensors}
    if len(types) > 1 or not types <= _NAMES.keys():
        told = ", ".join(str(tensor.dtype) for tensor in tensors)
        raise TypeError(
            f"{op}: no kernel is built for {told}; it takes one of {', '.join(map(str, _NAMES))} throughout"
        )
    for tensor in tensors:
        if tensor.stride(-1) != 1 and tensor.shape[-1] > 1:
            raise TypeError(f"{op}: features lie {tensor.stride(-1)} elements apart; they must be neighbours")
    return _NAMES[types.pop()]


def expect(op: str, dtype: torch.dtype, **tensors: Tensor) -> None:
    """Raise a TypeError unless all tensors are contiguous and of type `dtype`."""
    for name, tensor in tensors.items():
        if tensor.dtype != dtype:
            raise TypeError(f"{op}: {name} is {tensor.dtype}; the kernel takes {dtype}")
        if not tensor.is_contiguous():
            raise TypeError(f"{op}: {name} of shape {tuple(tensor.shape)} is not contiguous")


def variant(name: str, element: int, tensors: tuple[Tensor, ...], *widths: int) -> tuple[str, int]:
    """The kernel's name for these tensors and the elements that a thread takes at once.

    `element` is the bytes of one, `widths` what must hold whole accesses. Where they do not, or an address or a
    stride is odd, a variant takes elements one by one.
    """
    count = ACCESS // element
    return (name, count) if fits(ACCESS, element, tensors, *widths) else (f"{name}_any", 1)


def fits(access: int, element: int, tensors: tuple[Tensor, ...], *widths: int) -> bool:
    """Whether accesses of so many bytes divide addresses, strides and `widths` elements of `element` bytes."""
    strides = (stride * t.element_size() for t in tensors for stride in t.stride()[:-1])
    addresses = (tensor.data_ptr() for tensor in tensors)
    return all(value % access == 0 for value in (*addresses, *strides, *(width * element for width in widths)))


def rows_of(op: str, x: Tensor) -> tuple[int, int]:
    """Number of rows, and elements from one to the next, of x [..., width]."""
    return _strided(op, x, 1)[0]


def heads_of(op: str, x: Tensor) -> tuple[int, int, int]:
    """Number of rows, elements from row to row, and elements from head to head, of x [..., heads, width]."""
    ((rows, stride),) = _strided(op, x, 2)
    return rows, stride, x.stride(-2)


def _strided(op: str, x: Tensor, inner: int) -> list[tuple[int, int]]:
    outer = [(size, stride) for size, stride in zip(x.shape, x.stride(), strict=True)][: x.dim() - inner]
    count, step = 1, 0
    for size, stride in reversed(outer):
        if size == 1:
            continue
        if count == 1:
            step = stride
        elif stride != count * step:
            raise TypeError(f"{op}: rows of shape {tuple(x.shape)} and strides {x.stride()} are not evenly spaced")
        count *= size
    return [(count, step)]
