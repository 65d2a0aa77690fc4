# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Moving rows: embeddings, caches, tables, cursors."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from flashrt_ros.models.cuda.base import CudaBase
from flashrt_ros.models.cuda.layout import ACCESS, ceil_div, expect, rows_of, threads_for, type_name, variant

_THREADS = 256
_RANGES = 64
"""Tensors that one launch clears: their table is a kernel parameter."""


class _Ranges(ctypes.Structure):
    _fields_ = (
        ("flag", ctypes.c_uint64),
        ("target", ctypes.c_uint64 * _RANGES),
        ("nbytes", ctypes.c_uint64 * _RANGES),
        ("count", ctypes.c_uint32),
    )


class CudaRows(CudaBase):
    """Operations that move rows to where an integer buffer says; bytes move whatever their type."""

    def embed(self, tokens: Tensor, table: Tensor, length: Tensor, out: Tensor) -> None:
        """See Rows.embed."""
        self._embed("embed", tokens, table, length, None, None, out)

    def embed_rows(
        self, tokens: Tensor, table: Tensor, length: Tensor, index: Tensor, source: Tensor, out: Tensor
    ) -> None:
        """See Composites.embed_rows."""
        self._embed("embed_rows", tokens, table, length, index, source, out)

    def replace_rows(self, index: Tensor, source: Tensor, out: Tensor) -> None:
        """See Rows.replace_rows."""
        _check_moved("replace_rows", source, out)
        expect("replace_rows", torch.int64, index=index)
        unit = _unit(_row_bytes(out), source, out)
        units = _row_bytes(out) // unit
        threads = threads_for(units, _THREADS)
        self.cuda.launch("rows", f"replace_rows_{unit}", out.shape[0], threads, index, source, out, units)

    def _embed(
        self,
        op: str,
        tokens: Tensor,
        table: Tensor,
        length: Tensor,
        index: Tensor | None,
        source: Tensor | None,
        out: Tensor,
    ) -> None:
        replacing = () if source is None else (source,)
        _check_moved(op, table, *replacing, out)
        expect(op, torch.int64, tokens=tokens, length=length, **({} if index is None else {"index": index}))
        unit = _unit(_row_bytes(out), table, *replacing, out)
        units = _row_bytes(out) // unit
        threads = threads_for(units, _THREADS)
        arguments = (tokens, table, length, index, source, out, units)
        self.cuda.launch("rows", f"embed_{unit}", out.shape[0], threads, *arguments)

    def write_rows(self, x: Tensor, start: Tensor, length: Tensor, out: Tensor) -> None:
        """See Rows.write_rows; the types may differ."""
        self._write("write_rows", x, start, length, out, ())

    def append_rows(
        self, x: Tensor, fault: Tensor, bit: int, start: Tensor, length: Tensor, out: Tensor, end: Tensor
    ) -> None:
        """See Composites.append_rows; `end` is not `start`."""
        expect("append_rows", torch.int32, fault=fault)
        expect("append_rows", torch.int64, end=end)
        self._write("append_rows", x, start, length, out, (fault, 1 << bit, end))

    def _write(
        self, op: str, x: Tensor, start: Tensor, length: Tensor, out: Tensor, more: tuple[Tensor | int, ...]
    ) -> None:
        """One block a row; x [n, ...] may have rows apart from each other."""
        expect(op, torch.int64, start=start, length=length)
        expect(op, out.dtype, out=out)
        flat, width = x.flatten(1), out[0].numel()
        n, stride = rows_of(op, flat)
        kernel = f"{op}_{type_name(op, flat)}_{type_name(op, out)}"
        kernel, count = variant(kernel, min(x.element_size(), out.element_size()), (flat, out), width)
        threads = threads_for(ceil_div(width, count), _THREADS)
        self.cuda.launch("write_rows", kernel, n, threads, flat, start, length, out, width, stride, *more)

    def last_row(self, table: Tensor, count: Tensor, out: Tensor) -> None:
        """See Decoding.last_row; the types may differ."""
        op, width = "last_row", out.shape[1]
        expect(op, torch.int64, count=count)
        expect(op, table.dtype, table=table)
        expect(op, out.dtype, out=out)
        kernel = f"{op}_{type_name(op, table)}_{type_name(op, out)}"
        kernel, each = variant(kernel, min(table.element_size(), out.element_size()), (table, out), width)
        self.cuda.launch(
            "write_rows", kernel, 1, threads_for(ceil_div(width, each), _THREADS), table, count, out, width
        )

    def take_row(self, table: Tensor, index: Tensor, out: Tensor) -> None:
        """See Rows.take_row."""
        expect("take_row", torch.int64, index=index)
        expect("take_row", out.dtype, table=table[0])
        self._move("take_row", table, index, table.stride(0) * table.element_size(), out)

    def copy(self, x: Tensor, out: Tensor) -> None:
        """See Rows.copy; x and out have one type."""
        expect("copy", out.dtype, x=x)
        self._move("copy", x, None, 0, out)

    def _move(self, op: str, source: Tensor, index: Tensor | None, stride: int, out: Tensor) -> None:
        expect(op, out.dtype, out=out)
        unit = _unit(out.nbytes, source, out, stride=stride)
        units = out.nbytes // unit
        arguments = (source, index, np.int64(stride // unit), out, np.int64(units))
        self.cuda.launch("rows", f"take_row_{unit}", ceil_div(units, _THREADS), _THREADS, *arguments)

    def clear_if(self, flag: Tensor, out: Sequence[Tensor]) -> None:
        """See Rows.clear_if; one launch for every 64 tensors."""
        expect("clear_if", torch.int64, flag=flag)
        self._clear(flag, out)

    def clear(self, out: Tensor) -> None:
        """See Rows.clear."""
        self._clear(None, [out])

    def _clear(self, flag: Tensor | None, out: Sequence[Tensor]) -> None:
        for tensor in out:
            expect("clear", tensor.dtype, out=tensor)
            if tensor.data_ptr() % ACCESS:
                raise TypeError(
                    f"clear: out of shape {tuple(tensor.shape)} does not begin at a multiple of {ACCESS} bytes"
                )
        for first in range(0, len(out), _RANGES):
            part = out[first : first + _RANGES]
            table = _Ranges(flag=0 if flag is None else flag.data_ptr(), count=len(part))
            for index, tensor in enumerate(part):
                table.target[index], table.nbytes[index] = tensor.data_ptr(), tensor.nbytes
            largest = max(tensor.nbytes for tensor in part)
            grid = min(ceil_div(largest, _THREADS * ACCESS) * len(part), 4 * self.cuda.multiprocessors)
            self.cuda.launch_with("clear", "clear_ranges", grid, _THREADS, table)

    def set_sum(self, a: Tensor, b: Tensor, out: Tensor) -> None:
        """See Rows.set_sum."""
        self._add("set_sum", a, b, out)

    def increment(self, out: Tensor) -> None:
        """See Rows.increment."""
        self._add("increment", out, None, out)

    def _add(self, op: str, a: Tensor, b: Tensor | None, out: Tensor) -> None:
        expect(op, torch.int64, a=a, out=out, **({} if b is None else {"b": b}))
        self.cuda.launch("cursors", "add", ceil_div(out.numel(), _THREADS), _THREADS, a, b, out, out.numel())

    def advance(self, length: Tensor, rope_length: Tensor, position: Tensor, rope_delta: Tensor) -> None:
        """See Rows.advance."""
        cursors = {"length": length, "rope_length": rope_length, "position": position, "rope_delta": rope_delta}
        expect("advance", torch.int64, **cursors)
        self.cuda.launch("cursors", "advance", 1, 32, *cursors.values())


def _row_bytes(x: Tensor) -> int:
    return x[0].numel() * x.element_size()


def _check_moved(op: str, *tensors: Tensor) -> None:
    for tensor in tensors:
        expect(op, tensors[-1].dtype, rows=tensor)


def _unit(nbytes: int, *tensors: Tensor, stride: int = 0) -> int:
    """The largest unit of bytes in which rows of `nbytes` bytes of all tensors can be moved."""
    for unit in (ACCESS, 4):
        if nbytes % unit == 0 and stride % unit == 0 and all(tensor.data_ptr() % unit == 0 for tensor in tensors):
            return unit
    return 1
