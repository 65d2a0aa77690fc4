# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A capsule: the bytes of every state buffer at a boundary, and what is needed to trust them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from flashrt_ros.runtime.backend import Saved
from flashrt_ros.runtime.buffers import Buffer, BufferSet, Range
from flashrt_ros.runtime.lineage import Boundary
from flashrt_ros.runtime.manifest import Manifest, sha256


@dataclass(frozen=True, slots=True, eq=False)
class Capsule:
    """One saved execution state. `parent` names the capsule it descends from; `label` a fork's branch."""

    name: str
    label: str
    parent: str
    boundary: Boundary
    manifest: Manifest
    small: Saved
    rows: Saved
    automatic: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of saved state."""
        return self.small.nbytes + self.rows.nbytes

    def regions(self, buffers: BufferSet) -> Iterator[tuple[Buffer, torch.Tensor]]:
        """Each state buffer's live bytes in host memory, as flat uint8, in the order of the layout; on any thread."""
        small, row_bytes = self.small.on_host(), self.rows.on_host()
        for spec in buffers.state():
            rows = self.boundary.cursors.get(spec.rows, 0) if spec.rows else spec.shape[0]
            if rows == 0:
                yield spec, torch.empty(0, dtype=torch.uint8)
                continue
            wanted = Range(spec.memory, buffers.offsets[spec.name], rows * spec.row_nbytes)
            yield spec, _find(row_bytes if spec.rows else small, wanted)

    def sha256(self, buffers: BufferSet) -> str:
        """Digest of the digests of each state buffer's live bytes; equal capsules have equal ones."""
        digests = (sha256(data.numpy().data) for _, data in self.regions(buffers))
        return sha256(*map(bytes.fromhex, digests))


def part(saved: Saved, ranges: Sequence[Range]) -> Saved:
    """The bytes of `ranges` out of saved ones that contain them, without a copy.

    Raises:
        LookupError: a range is not within the saved ones.
    """
    return Saved(tuple(ranges), tuple(_find(saved, wanted) for wanted in ranges), saved.download)


def _find(saved: Saved, wanted: Range) -> torch.Tensor:
    for held, data in zip(saved.ranges, saved.data, strict=True):
        begin = wanted.offset - held.offset
        if held.memory == wanted.memory and begin >= 0 and begin + wanted.nbytes <= held.nbytes:
            return data[begin : begin + wanted.nbytes]
    raise LookupError(
        f"{wanted.nbytes} bytes at {wanted.offset} of {wanted.memory} memory are not among the saved ones"
    )
