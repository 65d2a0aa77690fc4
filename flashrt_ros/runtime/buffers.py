# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Named buffers that are allocated once and never move."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

Kind = Literal["weight", "state", "input", "output", "scratch"]
Scope = Literal["context", "history", "generator", "chunk"]
Memory = Literal["device", "host"]
Allocate = Callable[[int, Memory], torch.Tensor]

SCOPES: tuple[Scope, ...] = ("context", "history", "generator", "chunk")
ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class Buffer:
    """One named, contiguous tensor of a plan.

    `rows` names the cursor that bounds the live leading rows of a state buffer; without it the whole
    buffer is live. Rows are append-only along a lineage. `scope` is given for state buffers alone.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    kind: Kind
    scope: Scope | None = None
    rows: str = ""
    memory: Memory = "device"

    def __post_init__(self) -> None:
        if (self.kind == "state") != (self.scope is not None):
            raise ValueError(f"buffer {self.name}: a state buffer has a scope, any other has none")
        if self.rows and self.kind != "state":
            raise ValueError(f"buffer {self.name}: only a state buffer has live rows, this one is {self.kind}")
        if any(extent <= 0 for extent in self.shape):
            raise ValueError(f"buffer {self.name}: shape {self.shape} has an empty dimension")

    @property
    def nbytes(self) -> int:
        """Bytes of the whole buffer."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def row_nbytes(self) -> int:
        """Bytes of one leading row."""
        return self.nbytes // self.shape[0]


@dataclass(frozen=True, slots=True)
class Range:
    """`nbytes` bytes at `offset` of the state arena that lies in `memory`."""

    memory: Memory
    offset: int
    nbytes: int


class BufferSet:
    """Buffers in one arena for each kind and memory; `buffers["name"]` is a view that never moves.

    State buffers without rows stand first and side by side, so that small state is one range.
    """

    def __init__(self, specs: Iterable[Buffer], allocate: Allocate) -> None:
        self.specs: dict[str, Buffer] = {}
        for spec in sorted(specs, key=lambda spec: bool(spec.rows)):
            if spec.name in self.specs:
                raise ValueError(f"buffer {spec.name} is declared twice")
            self.specs[spec.name] = spec
        self.offsets: dict[str, int] = {}
        sizes: dict[tuple[Kind, Memory], int] = {}
        for spec in self.specs.values():
            place = (spec.kind, spec.memory)
            self.offsets[spec.name] = sizes.get(place, 0)
            sizes[place] = self.offsets[spec.name] + _aligned(spec.nbytes)
        self.arenas: dict[tuple[Kind, Memory], torch.Tensor] = {
            (kind, memory): allocate(nbytes, memory) for (kind, memory), nbytes in sizes.items()
        }
        self._views = {name: self._view(spec) for name, spec in self.specs.items()}
        self._with_rows = [spec for spec in self.state() if spec.rows]
        self._small_ranges: dict[tuple[Scope, ...], tuple[Range, ...]] = {}

    def _view(self, spec: Buffer) -> torch.Tensor:
        offset = self.offsets[spec.name]
        arena = self.arenas[spec.kind, spec.memory]
        return arena[offset : offset + spec.nbytes].view(spec.dtype).view(spec.shape)

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._views[name]

    def __contains__(self, name: str) -> bool:
        return name in self._views

    def of_kind(self, *kinds: Kind) -> list[Buffer]:
        """The buffers of these kinds, in arena order."""
        return [spec for spec in self.specs.values() if spec.kind in kinds]

    def state(self, scopes: Collection[Scope] = SCOPES) -> list[Buffer]:
        """The state buffers of these scopes, in arena order."""
        return [spec for spec in self.of_kind("state") if spec.scope in scopes]

    def live_bytes(self, name: str, cursors: Mapping[str, int]) -> torch.Tensor:
        """The bytes of a state buffer that `cursors` make live, as a flat uint8 view."""
        spec = self.specs[name]
        rows = cursors.get(spec.rows, 0) if spec.rows else spec.shape[0]
        return self._views[name].view(-1)[: rows * spec.row_nbytes // spec.dtype.itemsize].view(torch.uint8)

    def small_ranges(self, scopes: Collection[Scope] = SCOPES) -> tuple[Range, ...]:
        """Every state buffer without rows; neighbours are one range."""
        wanted = tuple(scopes)
        if wanted not in self._small_ranges:
            whole = ((spec, 0, spec.shape[0]) for spec in self.state(wanted) if not spec.rows)
            self._small_ranges[wanted] = self._merged(whole)
        return self._small_ranges[wanted]

    def row_ranges(
        self,
        cursors: Mapping[str, int],
        first: Mapping[str, int] | None = None,
        scopes: Collection[Scope] = SCOPES,
    ) -> tuple[Range, ...]:
        """The live rows, from row `first[cursor]` (default 0) up to each cursor."""
        first = first or {}
        return self._merged(
            (spec, first.get(spec.rows, 0), cursors.get(spec.rows, 0))
            for spec in self._with_rows
            if spec.scope in scopes
        )

    def _merged(self, parts: Iterable[tuple[Buffer, int, int]]) -> tuple[Range, ...]:
        ranges: list[Range] = []
        for spec, begin, end in parts:
            if end <= begin:
                continue
            offset = self.offsets[spec.name] + begin * spec.row_nbytes
            nbytes = (end - begin) * spec.row_nbytes
            last = ranges[-1] if ranges else None
            if last and last.memory == spec.memory and offset - _aligned(last.offset + last.nbytes) == 0:
                ranges[-1] = Range(last.memory, last.offset, offset + nbytes - last.offset)
            else:
                ranges.append(Range(spec.memory, offset, nbytes))
        return tuple(ranges)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
