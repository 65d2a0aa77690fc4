# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""In what two capsule files differ: each state buffer from which row on, the inputs, the manifest."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from flashrt_ros.policy.capsule_info import FORMAT, STATE, CapsuleInfo, info_of, input_digests, regions_of
from flashrt_ros.policy.tensor_file import Entry, TensorFile, open_checked
from flashrt_ros.runtime.manifest import differences

_NUMPY = {"BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "U16": "<u2", "F16": "<f2", "I32": "<i4", "U32": "<u4"}
_NUMPY |= {"F32": "<f4", "I64": "<i8", "U64": "<u8", "F64": "<f8"}
_COMPARED = ("kind", "instruction", "stamp", "measured", "cursors")


@dataclass(frozen=True, slots=True)
class BufferDifference:
    """A state buffer that is not the same in both.

    Attributes:
        name: of the buffer.
        rows: leading rows that are live in each; -1: it is not there.
        first_row: from which on they differ; None: they cannot be compared.
        differing_rows: of those that both have.
        largest: absolute difference of two values; None: they cannot be compared, or only the number of rows differs.
        what: the difference in words.
    """

    name: str
    rows: tuple[int, int]
    first_row: int | None
    differing_rows: int
    largest: float | None
    what: str


@dataclass(frozen=True, slots=True)
class CapsuleDifference:
    """Everything in which two capsules differ; their names, labels and ages do not count.

    Attributes:
        header: "what: one, the other".
        manifest: as `runtime.manifest.differences`.
        inputs: number of inputs of each, and how many of them are the same from the first on.
        buffers: those that differ.
        equal_buffers: how many do not.
    """

    header: list[str]
    manifest: list[str]
    inputs: tuple[int, int, int]
    buffers: list[BufferDifference]
    equal_buffers: int

    @property
    def same(self) -> bool:
        """Whether they hold the same state, made of the same inputs by the same policy."""
        return not (self.header or self.manifest or self.buffers) and len(set(self.inputs)) == 1


def compare(left: Path, right: Path) -> CapsuleDifference:
    """Compare two capsule files.

    Raises:
        FlashrtError: as `read_info`; DAMAGED too where bytes that had to be read are not those that were written.
    """
    with open_checked(left, FORMAT) as a, open_checked(right, FORMAT) as b:
        infos = info_of(a), info_of(b)
        ours, theirs = input_digests(a), input_digests(b)
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)))
        names = list(dict.fromkeys([*regions_of(a), *regions_of(b)]))
        found = [_buffer(name, a, b) for name in names]
        differing = [difference for difference in found if difference is not None]
        return CapsuleDifference(
            _header(*infos),
            differences(infos[0].manifest, infos[1].manifest),
            (len(ours), len(theirs), common),
            differing,
            len(names) - len(differing),
        )


def _header(left: CapsuleInfo, right: CapsuleInfo) -> list[str]:
    pairs: list[tuple[str, Any, Any]] = [(name, getattr(left, name), getattr(right, name)) for name in _COMPARED]
    return [f"{name}: {_shown(one)}, {_shown(other)}" for name, one, other in pairs if one != other]


def _shown(value: Any) -> str:
    return f"[{', '.join(f'{joint:.4f}' for joint in value)}]" if isinstance(value, tuple) else str(value)


def _buffer(name: str, a: TensorFile, b: TensorFile) -> BufferDifference | None:
    ours, theirs = regions_of(a).get(name), regions_of(b).get(name)
    if ours is None or theirs is None:
        where = "second" if ours is None else "first"
        return BufferDifference(name, (_rows(ours), _rows(theirs)), None, 0, None, f"only the {where} one has it")
    if (ours.dtype, ours.shape, ours.sha256) == (theirs.dtype, theirs.shape, theirs.sha256):
        return None
    rows = _rows(ours), _rows(theirs)
    if (ours.dtype, ours.shape[1:]) != (theirs.dtype, theirs.shape[1:]):
        what = f"{ours.dtype} {list(ours.shape)}, {theirs.dtype} {list(theirs.shape)}"
        return BufferDifference(name, rows, None, 0, None, what)
    shared = min(rows)
    one, other = _read(a, name, ours)[:shared], _read(b, name, theirs)[:shared]
    differing = np.flatnonzero((one != other).any(axis=1)) if shared else np.empty(0, int)
    more = f"{abs(rows[0] - rows[1])} more rows in the {'first' if rows[0] > rows[1] else 'second'}"
    if differing.size == 0:
        return BufferDifference(name, rows, shared, 0, None, f"equal up to row {shared}, {more}")
    distances = np.abs(_numbers(one[differing], ours.dtype) - _numbers(other[differing], ours.dtype))
    largest = float(np.nanmax(distances, initial=0.0))
    what = f"{differing.size} of {shared} rows from row {differing[0]} on"
    what += f"; {more}" if rows[0] != rows[1] else ""
    return BufferDifference(name, rows, int(differing[0]), int(differing.size), largest, what)


def _rows(entry: Entry | None) -> int:
    return -1 if entry is None else entry.shape[0]


def _read(file: TensorFile, name: str, entry: Entry) -> np.ndarray:
    """The bytes of a buffer, uint8 [rows, bytes of a row]."""
    data = np.empty(entry.nbytes, np.uint8)
    file.read({f"{STATE}{name}": data.data})
    return data.reshape(entry.shape[0], -1) if entry.nbytes else data


def _numbers(rows: np.ndarray, dtype: str) -> np.ndarray:
    """The values of rows of bytes, as float64."""
    if dtype == "BF16":
        return (rows.view("<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    return rows.view(_NUMPY[dtype]).astype(np.float64)
