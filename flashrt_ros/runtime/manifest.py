# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What must be equal for capsule bytes to mean the same thing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # tools that read manifests must not wait for torch
    from flashrt_ros.runtime.buffers import Buffer

Manifest = dict[str, dict[str, str]]
"""Part ("weights", "config", "tokenizer", "normaliser", "contract", "layout", "numerics") to its named values."""


def layout(buffers: Iterable[Buffer]) -> dict[str, str]:
    """Name, dtype, shape, scope and order of the state buffers."""
    return {
        spec.name: f"{index} {spec.dtype} {list(spec.shape)} {spec.scope} rows={spec.rows or 'all'} {spec.memory}"
        for index, spec in enumerate(buffers)
    }


def differences(expected: Manifest, found: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Each value that differs, as `part.name: expected ..., found ...`."""
    lines = []
    for part in sorted(expected.keys() | found.keys()):
        ours, theirs = expected.get(part, {}), found.get(part, {})
        if ours == theirs:
            continue
        for name in sorted(ours.keys() | theirs.keys()):
            if ours.get(name) != theirs.get(name):
                lines.append(f"{part}.{name}: expected {ours.get(name)}, found {theirs.get(name)}")
    return lines


def sha256(*chunks: bytes | memoryview) -> str:
    """Hex digest of the chunks, one behind the other."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
