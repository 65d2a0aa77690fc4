# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A capsule as one safetensors file.

Tensors: `state.<buffer>` is the live part of a state buffer, `recipe.<event>.<field>` an input. The document beside
them holds the rest, see `_document`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import torch

from flashrt_ros.policy.names import check_name, is_name
from flashrt_ros.policy.tensor_file import Tensor, TensorFile, damaged, encoded_header, open_checked
from flashrt_ros.runtime.backend import Saved
from flashrt_ros.runtime.buffers import Buffer, BufferSet, Range
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary, BoundaryKind, Rows
from flashrt_ros.runtime.manifest import Manifest, differences
from flashrt_ros.runtime.recipe import decode, encode

FORMAT = "flashrt_capsule"
SCHEMA = 1
SUFFIX = ".safetensors"
_SHOWN_DIFFERENCES = 6
_DOCUMENT_TYPES = {"created": int, "name": str, "label": str, "parent": str, "automatic": bool}
_DOCUMENT_TYPES |= {"manifest": dict, "boundary": dict, "recipe": list}
_BOUNDARY_TYPES = {"id": str, "kind": str, "parent": str, "instruction": str, "stamp": int}
_BOUNDARY_TYPES |= {"measured": list, "cursors": dict}

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
class CapsuleInfo:
    """What a file's header says of its capsule. `created`: ns, rises with every file of a folder."""

    name: str
    label: str
    parent: str
    boundary: str
    kind: str
    instruction: str
    stamp: int
    cursors: Mapping[str, int]
    manifest: Manifest
    automatic: bool
    created: int


@dataclass(frozen=True, slots=True)
class EncodedCapsule:
    """A capsule's file, ready to be written: the header, then the tensors' bytes."""

    header: bytes
    tensors: tuple[Tensor, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return len(self.header) + sum(tensor.data.nbytes for tensor in self.tensors)


def path_of(folder: Path, name: str) -> Path:
    """Where a folder keeps the capsule `name`; BAD_NAME for one that is no name."""
    check_name(name)
    return folder / f"{name}{SUFFIX}"


def name_of(path: Path) -> str | None:
    """The capsule that `path` is the file of; None for any other file."""
    name = path.name.removesuffix(SUFFIX)
    return name if path.name.endswith(SUFFIX) and is_name(name) else None


def encode_capsule(capsule: Capsule, buffers: BufferSet, created: int) -> EncodedCapsule:
    """Lay out a capsule's file and take its checksums; the bytes themselves are not copied."""
    events, arrays = encode(capsule.boundary.recipe)
    tensors = [
        Tensor(f"state.{spec.name}", _DTYPES[spec.dtype], _live_shape(spec, capsule.boundary.cursors), _bytes(data))
        for spec, data in capsule.regions(buffers)
    ]
    tensors += [_array_tensor(name, array) for name, array in arrays.items()]
    header = encoded_header(FORMAT, _document(capsule, events, created), tensors)
    return EncodedCapsule(header, tuple(tensors))


def read_info(path: Path) -> CapsuleInfo:
    """Read and check a capsule file's header alone; errors as `open_checked`."""
    with open_checked(path, FORMAT) as file:
        return _info(file)


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
        info = _info(file)
        differing = differences(manifest, info.manifest)
        if differing and not foreign:
            more = len(differing) - _SHOWN_DIFFERENCES
            raise FlashrtError(
                ErrorCode.MANIFEST_MISMATCH,
                f"{path}: made elsewhere: {'; '.join(differing[:_SHOWN_DIFFERENCES])}"
                f"{f'; and {more} more' if more > 0 else ''}. It can be rebuilt from its recipe (rebuild)",
            )
        boundary = _boundary(file, info)
        empty = Saved((), ())
        small, rows = (empty, empty) if differing else _state(file, buffers, info.cursors)
        return Capsule(info.name, info.label, info.parent, boundary, info.manifest, small, rows, info.automatic)


def _document(capsule: Capsule, events: list[dict[str, Any]], created: int) -> dict[str, Any]:
    boundary = capsule.boundary
    return {
        "schema": SCHEMA,
        "created": created,
        "name": capsule.name,
        "label": capsule.label,
        "parent": capsule.parent,
        "automatic": capsule.automatic,
        "manifest": capsule.manifest,
        "boundary": {
            "id": boundary.id,
            "kind": boundary.kind,
            "parent": boundary.parent,
            "instruction": boundary.instruction,
            "stamp": boundary.stamp,
            "measured": list(boundary.measured),
            "cursors": dict(boundary.cursors),
        },
        "recipe": events,
    }


def _info(file: TensorFile) -> CapsuleInfo:
    document = file.document
    schema = document.get("schema")
    if schema != SCHEMA:
        raise damaged(file.path, f"schema {schema}, this version reads schema {SCHEMA} (newer ones need an upgrade)")
    _check_types(file.path, "document", document, _DOCUMENT_TYPES)
    boundary = document["boundary"]
    _check_types(file.path, "boundary", boundary, _BOUNDARY_TYPES)
    _check_types(file.path, "cursors", boundary["cursors"], dict.fromkeys(boundary["cursors"], int))
    _check_types(file.path, "manifest", document["manifest"], dict.fromkeys(document["manifest"], dict))
    info = CapsuleInfo(
        document["name"],
        document["label"],
        document["parent"],
        boundary["id"],
        boundary["kind"],
        boundary["instruction"],
        boundary["stamp"],
        boundary["cursors"],
        document["manifest"],
        document["automatic"],
        document["created"],
    )
    if info.name != name_of(file.path):
        raise damaged(file.path, f"holds the capsule {info.name!r}; a file is named after its capsule")
    return info


def _check_types(path: Path, part: str, values: Mapping[str, Any], types: Mapping[str, type]) -> None:
    for name, kind in types.items():
        if type(values.get(name)) is not kind:
            raise damaged(path, f"{part}.{name} is {values.get(name)!r}, not of type {kind.__name__}")


def _boundary(file: TensorFile, info: CapsuleInfo) -> Boundary:
    boundary = file.document["boundary"]
    arrays = {name: _read_array(file, name) for name in file.entries if name.startswith("recipe.")}
    try:
        recipe = decode(file.document["recipe"], arrays)
        measured = tuple(float(joint) for joint in boundary["measured"])
    except (TypeError, ValueError, AttributeError) as error:
        raise damaged(file.path, f"its recipe or its measured joints cannot be read: {error}") from error
    if info.kind not in get_args(BoundaryKind):
        raise damaged(file.path, f"boundary kind {info.kind!r} is unknown")
    kind = cast(BoundaryKind, info.kind)
    rows = Rows().append(info.cursors)
    return Boundary(info.boundary, kind, boundary["parent"], rows, recipe, info.instruction, info.stamp, measured)


def _state(file: TensorFile, buffers: BufferSet, cursors: Mapping[str, int]) -> tuple[Saved, Saved]:
    """Fill the ranges that hold the state at `cursors`, as `Backend.save` lays them out."""
    _check_layout(file, buffers, cursors)
    both = []
    for ranges, with_rows in ((buffers.small_ranges(), False), (buffers.row_ranges(cursors), True)):
        data = tuple(torch.zeros(part.nbytes, dtype=torch.uint8) for part in ranges)
        for spec in buffers.state():
            if bool(spec.rows) == with_rows and file.entries[f"state.{spec.name}"].nbytes:
                _read_region(file, spec, buffers.offsets[spec.name], ranges, data)
        both.append(Saved(tuple(ranges), data))
    return both[0], both[1]


def _check_layout(file: TensorFile, buffers: BufferSet, cursors: Mapping[str, int]) -> None:
    found = {
        name.removeprefix("state."): (entry.dtype, entry.shape)
        for name, entry in file.entries.items()
        if name.startswith("state.")
    }
    for spec in buffers.state():
        if spec.rows and not 0 <= (cursor := cursors.get(spec.rows, 0)) <= spec.shape[0]:
            raise damaged(file.path, f"cursor {spec.rows} is {cursor}, {spec.name} has {spec.shape[0]} rows")
        wanted = (_DTYPES[spec.dtype], _live_shape(spec, cursors))
        if found.pop(spec.name, None) != wanted:
            raise damaged(file.path, f"state buffer {spec.name} is absent or not {wanted[0]} {list(wanted[1])}")
    if found:
        raise damaged(file.path, f"unknown state buffers: {', '.join(found)}")


def _read_region(
    file: TensorFile, spec: Buffer, offset: int, ranges: list[Range], data: tuple[torch.Tensor, ...]
) -> None:
    name = f"state.{spec.name}"
    for part, target in zip(ranges, data, strict=True):
        begin = offset - part.offset
        if part.memory == spec.memory and 0 <= begin < part.nbytes:
            file.read_into(name, _bytes(target[begin : begin + file.entries[name].nbytes]))


def _read_array(file: TensorFile, name: str) -> np.ndarray:
    entry = file.entries[name]
    dtype = _NUMPY_OF.get(entry.dtype)
    if dtype is None:
        raise damaged(file.path, f"{name} is {entry.dtype}, which no recipe holds")
    data = np.empty(entry.nbytes, np.uint8)
    file.read_into(name, data.data)
    return data.view(dtype).reshape(entry.shape)


def _live_shape(spec: Buffer, cursors: Mapping[str, int]) -> tuple[int, ...]:
    return (cursors.get(spec.rows, 0), *spec.shape[1:]) if spec.rows else spec.shape


def _bytes(data: torch.Tensor) -> memoryview:
    return data.numpy().data


def _array_tensor(name: str, array: np.ndarray) -> Tensor:
    dtype = _NUMPY.get(array.dtype.str)
    if dtype is None:
        raise ValueError(f"recipe array {name} is {array.dtype}, which a capsule file cannot hold")
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return Tensor(name, dtype, array.shape, data.data)
