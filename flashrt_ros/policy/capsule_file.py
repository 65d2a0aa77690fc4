# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A capsule as one safetensors file.

Tensors: `state.<buffer>` is the live part of a state buffer, `recipe.<event>.<field>` an input. The document beside
them holds the rest, see `capsule_info.document_of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import torch

from flashrt_ros.policy.capsule_info import (
    FORMAT,
    RECIPE,
    STATE,
    CapsuleInfo,
    document_of,
    info_of,
    regions_of,
    written_info,
)
from flashrt_ros.policy.tensor_file import Header, Tensor, TensorFile, damaged, digests_of, open_checked, write_aside
from flashrt_ros.runtime.backend import Saved
from flashrt_ros.runtime.buffers import Buffer, BufferSet, Range
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary, BoundaryKind, Rows
from flashrt_ros.runtime.manifest import Manifest, differences
from flashrt_ros.runtime.recipe import Recipe, decode, encode_event

_SHOWN_DIFFERENCES = 6

_DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}
_NUMPY = {"|b1": "BOOL", "|u1": "U8", "|i1": "I8", "<i2": "I16", "<u2": "U16", "<i4": "I32", "<u4": "U32"}
_NUMPY |= {"<i8": "I64", "<u8": "U64", "<f2": "F16", "<f4": "F32", "<f8": "F64"}
_NUMPY_OF = {name: np.dtype(code) for code, name in _NUMPY.items()}


@dataclass(frozen=True, slots=True)
class EncodedCapsule:
    """A capsule's file, ready to be written. It holds the capsule's own bytes, not a copy of them."""

    document: dict[str, Any]
    header: Header
    tensors: tuple[Tensor, ...]
    nbytes: int

    def write_aside(self, path: Path) -> CapsuleInfo:
        """Write the file, and return what it says; errors as `tensor_file.write_aside`."""
        digests = write_aside(path, self.header, self.tensors)
        state = [tensor for tensor in self.tensors if tensor.name.startswith(STATE)]
        return written_info(self.document, [(tensor.data.nbytes, digests[tensor.name]) for tensor in state])


class RecipeEncoder:
    """Encodes recipes one after the other: what one has in common with the one before is not looked at again.

    Else each snapshot of an episode would hash all of its images again.
    """

    def __init__(self) -> None:
        self._line: list[tuple[Recipe, dict[str, Any], list[Tensor]]] = []

    def encode(self, recipe: Recipe) -> tuple[list[dict[str, Any]], list[Tensor]]:
        """The events, JSON-able, and their arrays as tensors with checksums."""
        known = {id(node): depth for depth, (node, _, _) in enumerate(self._line)}
        fresh: list[Recipe] = []
        node: Recipe | None = recipe
        while node is not None and id(node) not in known:
            fresh.append(node)
            node = node.parent
        del self._line[known[id(node)] + 1 if node is not None else 0 :]
        for node in reversed(fresh):
            header, arrays = encode_event(len(self._line), node.event)
            self._line.append((node, header, [_hashed(array_tensor(name, array)) for name, array in arrays.items()]))
        return [header for _, header, _ in self._line], [tensor for _, _, each in self._line for tensor in each]


def encode_capsule(
    capsule: Capsule, buffers: BufferSet, created: int, recipes: RecipeEncoder | None = None
) -> EncodedCapsule:
    """Lay out a capsule's file; `created` in ns. `recipes` spares work where capsules have inputs in common."""
    events, inputs = (recipes or RecipeEncoder()).encode(capsule.boundary.recipe)
    tensors = [
        Tensor(f"{STATE}{spec.name}", _DTYPES[spec.dtype], _live_shape(spec, capsule.boundary.cursors), _bytes(data))
        for spec, data in capsule.regions(buffers)
    ]
    tensors += inputs
    document = document_of(capsule, events, created)
    header = Header(FORMAT, document, tensors)
    nbytes = header.nbytes + sum(tensor.data.nbytes for tensor in tensors)
    return EncodedCapsule(document, header, tuple(tensors), nbytes)


def read_capsule(path: Path, buffers: BufferSet, manifest: Manifest, foreign: bool = False) -> Capsule:
    """Read a capsule after checking every byte of its file.

    Args:
        path: the file, named after the capsule.
        buffers: the state that its bytes are for.
        manifest: what the capsule's own must equal.
        foreign: accept another manifest; the capsule then carries its recipe but no bytes.

    Raises:
        FlashrtError: UNKNOWN_CAPSULE, STORAGE or DAMAGED as `open_checked`; MANIFEST_MISMATCH naming what differs.
    """
    with open_checked(path, FORMAT) as file:
        info = info_of(file)
        differing = differences(manifest, info.manifest)
        if differing and not foreign:
            raise FlashrtError(
                ErrorCode.MANIFEST_MISMATCH,
                f"{path}: made elsewhere: {shortened(differing)}. It can be rebuilt from its recipe (rebuild)",
            )
        targets, arrays = recipe_targets(file)
        empty = Saved((), ())
        small, rows = (empty, empty) if differing else _state(file, buffers, info.cursors, targets)
        file.read(targets)
        boundary = _boundary(file, info, arrays)
        return Capsule(info.name, info.label, info.parent, boundary, info.manifest, small, rows, info.automatic)


def shortened(differing: list[str]) -> str:
    """Some of the differences of a manifest, and how many more there are."""
    more = len(differing) - _SHOWN_DIFFERENCES
    return f"{'; '.join(differing[:_SHOWN_DIFFERENCES])}{f'; and {more} more' if more > 0 else ''}"


def recipe_targets(file: TensorFile) -> tuple[dict[str, memoryview], dict[str, np.ndarray]]:
    """Arrays for the recipe of a file, still empty, and the memory to read each of them into."""
    targets, arrays = {}, {}
    for name, entry in file.entries.items():
        if not name.startswith(RECIPE):
            continue
        dtype = _NUMPY_OF.get(entry.dtype)
        if dtype is None:
            raise damaged(file.path, f"{name} is {entry.dtype}, which no recipe holds")
        data = np.empty(entry.nbytes, np.uint8)
        targets[name], arrays[name] = data.data, data.view(dtype).reshape(entry.shape)
    return targets, arrays


def decoded_recipe(file: TensorFile, arrays: Mapping[str, np.ndarray]) -> Recipe:
    """The recipe of a file, whose arrays have been read; DAMAGED if it is none."""
    try:
        return decode(file.document["recipe"], arrays)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(file.path, f"its recipe cannot be read: {error}") from error


def array_tensor(name: str, array: np.ndarray) -> Tensor:
    """An array of a recipe as a tensor of a file."""
    dtype = _NUMPY.get(array.dtype.str)
    if dtype is None:
        raise ValueError(f"recipe array {name} is {array.dtype}, which a capsule file cannot hold")
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return Tensor(name, dtype, array.shape, data.data)


def _hashed(tensor: Tensor) -> Tensor:
    return replace(tensor, sha256=digests_of([tensor])[tensor.name])


def _boundary(file: TensorFile, info: CapsuleInfo, arrays: Mapping[str, np.ndarray]) -> Boundary:
    if info.kind not in get_args(BoundaryKind):
        raise damaged(file.path, f"boundary kind {info.kind!r} is unknown")
    kind, parent = cast(BoundaryKind, info.kind), file.document["boundary"]["parent"]
    rows, recipe = Rows().append(info.cursors), decoded_recipe(file, arrays)
    return Boundary(info.boundary, kind, parent, rows, recipe, info.instruction, info.stamp, info.measured)


def _state(
    file: TensorFile, buffers: BufferSet, cursors: Mapping[str, int], targets: dict[str, memoryview]
) -> tuple[Saved, Saved]:
    """Memory for the ranges that hold the state at `cursors`, as `Backend.save` lays them out.

    Where each buffer's bytes belong in it is added to `targets`.
    """
    _check_layout(file, buffers, cursors)
    both = []
    for ranges, with_rows in ((buffers.small_ranges(), False), (buffers.row_ranges(cursors), True)):
        data = tuple(torch.zeros(part.nbytes, dtype=torch.uint8) for part in ranges)
        for spec in buffers.state():
            name = f"{STATE}{spec.name}"
            if bool(spec.rows) == with_rows and file.entries[name].nbytes:
                targets[name] = _target(spec, buffers.offsets[spec.name], file.entries[name].nbytes, ranges, data)
        both.append(Saved(ranges, data))
    return both[0], both[1]


def _check_layout(file: TensorFile, buffers: BufferSet, cursors: Mapping[str, int]) -> None:
    found = {name: (entry.dtype, entry.shape) for name, entry in regions_of(file).items()}
    for spec in buffers.state():
        if spec.rows and not 0 <= (cursor := cursors.get(spec.rows, 0)) <= spec.shape[0]:
            raise damaged(file.path, f"cursor {spec.rows} is {cursor}, {spec.name} has {spec.shape[0]} rows")
        wanted = (_DTYPES[spec.dtype], _live_shape(spec, cursors))
        if found.pop(spec.name, None) != wanted:
            raise damaged(file.path, f"state buffer {spec.name} is absent or not {wanted[0]} {list(wanted[1])}")
    if found:
        raise damaged(file.path, f"unknown state buffers: {', '.join(found)}")


def _target(
    spec: Buffer, offset: int, nbytes: int, ranges: tuple[Range, ...], data: tuple[torch.Tensor, ...]
) -> memoryview:
    for part, held in zip(ranges, data, strict=True):
        begin = offset - part.offset
        if part.memory == spec.memory and 0 <= begin < part.nbytes:
            return _bytes(held[begin : begin + nbytes])
    raise ValueError(f"no range holds {spec.name}")


def _live_shape(spec: Buffer, cursors: Mapping[str, int]) -> tuple[int, ...]:
    return (cursors.get(spec.rows, 0), *spec.shape[1:]) if spec.rows else spec.shape


def _bytes(data: torch.Tensor) -> memoryview:
    return data.numpy().data
