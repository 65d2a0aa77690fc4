# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the header of a capsule's file says: everything but the bytes. Imports no torch, so that tools start at once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from flashrt_ros.policy.names import check_name, is_name
from flashrt_ros.policy.tensor_file import Entry, TensorFile, damaged, open_checked
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.manifest import Manifest, sha256
from flashrt_ros.version import VERSION

if TYPE_CHECKING:
    from flashrt_ros.runtime.capsule import Capsule

FORMAT = "flashrt_capsule"
SCHEMA = 1
SUFFIX = ".safetensors"
STATE, RECIPE = "state.", "recipe."
"""What the names of tensors begin with: a state buffer's live part, an array of the recipe."""

_DOCUMENT_TYPES = {"created": int, "version": str, "name": str, "label": str, "parent": str, "automatic": bool}
_DOCUMENT_TYPES |= {"manifest": dict, "boundary": dict, "recipe": list}
_BOUNDARY_TYPES = {"id": str, "kind": str, "parent": str, "instruction": str, "stamp": int}
_BOUNDARY_TYPES |= {"measured": list, "cursors": dict}


@dataclass(frozen=True, slots=True)
class CapsuleInfo:
    """A capsule without its bytes and without the inputs of its recipe.

    Attributes:
        name: of the capsule, and of its file.
        label: of a fork's branch.
        parent: the capsule that it descends from; empty: none.
        boundary: id of the boundary that it holds.
        kind: of that boundary.
        instruction: in force there.
        stamp: ns, of the newest observation.
        measured: joints of that observation, rad or m.
        cursors: live rows by cursor.
        manifest: of the policy and the device that made it.
        automatic: taken by the node itself.
        created: ns, when the file was written; rises with every file of a folder.
        version: of the package that wrote it.
        nbytes: of live state.
        sha256: of live state, as `Capsule.sha256`.
    """

    name: str
    label: str
    parent: str
    boundary: str
    kind: str
    instruction: str
    stamp: int
    measured: tuple[float, ...]
    cursors: Mapping[str, int]
    manifest: Manifest
    automatic: bool
    created: int
    version: str
    nbytes: int
    sha256: str


def path_of(folder: Path, name: str) -> Path:
    """Where a folder keeps the capsule `name`; BAD_NAME for one that is no name."""
    check_name(name)
    return folder / f"{name}{SUFFIX}"


def name_of(path: Path) -> str | None:
    """The capsule that `path` is the file of; None for any other file."""
    name = path.name.removesuffix(SUFFIX)
    return name if path.name.endswith(SUFFIX) and is_name(name) else None


def check_path(path: Path) -> None:
    """Raise BAD_NAME for what is there and by its name no capsule's file: it is not to be taken for a damaged one."""
    if name_of(path) is None and path.exists():
        raise FlashrtError(ErrorCode.BAD_NAME, f"{path} is no capsule: a capsule's file is named NAME{SUFFIX}")


def read_info(path: Path) -> CapsuleInfo:
    """Read and check a capsule file's header alone; errors as `open_checked` and `info_of`."""
    with open_checked(path, FORMAT) as file:
        return info_of(file)


def document_of(capsule: Capsule, events: list[dict[str, Any]], created: int) -> dict[str, Any]:
    """The document that a capsule's file carries beside its tensors."""
    boundary = capsule.boundary
    return {
        "schema": SCHEMA,
        "version": VERSION,
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


def info_of(file: TensorFile) -> CapsuleInfo:
    """Read the document of an open file.

    Raises:
        FlashrtError: NOT_SUPPORTED, another schema; DAMAGED, something is not what this schema says.
    """
    document = file.document
    schema = document.get("schema")
    if schema != SCHEMA:
        raise FlashrtError(
            ErrorCode.NOT_SUPPORTED,
            f"{file.path}: schema {schema} of flashrt_ros {document.get('version')}, this is {VERSION} and reads "
            f"schema {SCHEMA}; upgrade to use it",
        )
    check_types(file.path, "document", document, _DOCUMENT_TYPES)
    boundary = document["boundary"]
    check_types(file.path, "boundary", boundary, _BOUNDARY_TYPES)
    check_types(file.path, "cursors", boundary["cursors"], dict.fromkeys(boundary["cursors"], int))
    check_types(file.path, "manifest", document["manifest"], dict.fromkeys(document["manifest"], dict))
    if any(type(joint) not in (int, float) for joint in boundary["measured"]):
        raise damaged(file.path, f"the measured joints {boundary['measured']} are not numbers")
    if document["name"] != name_of(file.path):
        raise damaged(file.path, f"holds the capsule {document['name']!r}; a file is named after its capsule")
    return written_info(document, [(region.nbytes, region.sha256) for region in regions_of(file).values()])


def written_info(document: Mapping[str, Any], regions: Sequence[tuple[int, str]]) -> CapsuleInfo:
    """What a file says that has this document and, in the order of the layout, these sizes and digests of state."""
    boundary = document["boundary"]
    return CapsuleInfo(
        name=document["name"],
        label=document["label"],
        parent=document["parent"],
        boundary=boundary["id"],
        kind=boundary["kind"],
        instruction=boundary["instruction"],
        stamp=boundary["stamp"],
        measured=tuple(float(joint) for joint in boundary["measured"]),
        cursors=boundary["cursors"],
        manifest=_shared(json.dumps(document["manifest"])),
        automatic=document["automatic"],
        created=document["created"],
        version=document["version"],
        nbytes=sum(nbytes for nbytes, _ in regions),
        sha256=sha256(*(bytes.fromhex(digest) for _, digest in regions)),
    )


@lru_cache(16)
def _shared(manifest: str) -> Manifest:
    """A manifest that all files of one policy have in common, once in memory."""
    return cast(Manifest, json.loads(manifest))


def regions_of(file: TensorFile) -> dict[str, Entry]:
    """The state buffers of a file, in the order of the layout; the first dimension counts live rows."""
    return {name.removeprefix(STATE): entry for name, entry in file.entries.items() if name.startswith(STATE)}


def input_digests(file: TensorFile) -> list[str]:
    """A digest of each event of a file's recipe; equal inputs have equal ones."""
    arrays: dict[str, list[Any]] = {}
    for name, entry in file.entries.items():
        if name.startswith(RECIPE):
            index, _, field = name.removeprefix(RECIPE).partition(".")
            arrays.setdefault(index, []).append([field, entry.dtype, entry.shape, entry.sha256])
    events = [[event, sorted(arrays.get(str(index), []))] for index, event in enumerate(file.document["recipe"])]
    return [sha256(json.dumps(event, sort_keys=True).encode()) for event in events]


def check_types(path: Path, part: str, values: Mapping[str, Any], types: Mapping[str, type]) -> None:
    """Raise DAMAGED unless each of the named values is of its type."""
    for name, kind in types.items():
        if type(values.get(name)) is not kind:
            raise damaged(path, f"{part}.{name} is {values.get(name)!r}, not of type {kind.__name__}")
