# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How checkpoint tensors become weight buffers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.reference.quantised import FP8, Matrix, Quantised, quantise
from flashrt_ros.runtime.buffers import Buffer, BufferSet
from flashrt_ros.runtime.progress import Tell, tell_nobody

_PIECE = 1 << 22
"""Values that are converted at a time, so that neither memory holds much beside the files' pages and the buffers."""


@dataclass(frozen=True, slots=True)
class Part:
    """A checkpoint tensor: its name, its shape in the file, and what is done to it, as float32, before it is stored.

    `by_rows`: the same is done to each row by itself.
    """

    name: str
    shape: tuple[int, ...]
    transform: Callable[[Tensor], Tensor] | None = None
    by_rows: bool = False

    def pieces(self, tensor: Tensor, like: Tensor) -> Iterator[Tensor]:
        """What is stored, in pieces of some rows each; what need not be converted for a copy to `like` is not."""
        if self.transform is not None and not self.by_rows:
            yield self.transform(tensor.float())
            return
        for rows in tensor.split(max(_PIECE // tensor[0].numel(), 1)):
            if self.transform is not None:
                yield self.transform(rows.to(like.device).float())
            else:
                yield rows if rows.dtype == like.dtype else rows.to(like.device)

    @property
    def values(self) -> int:
        """How many the file holds of it."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight buffer and the checkpoint tensors that are stacked in it along the first dimension.

    With `scale`, a buffer too, it is quantised when it is loaded.
    """

    buffer: Buffer
    parts: tuple[Part, ...]
    scale: Buffer | None = None

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """All of them."""
        return (self.buffer,) if self.scale is None else (self.buffer, self.scale)


def weight(name: str, dtype: torch.dtype, *parts: Part, shape: tuple[int, ...] | None = None) -> Weight:
    """A weight whose shape is that of its stacked parts, unless a transform makes it `shape`."""
    stacked = shape or (sum(part.shape[0] for part in parts), *parts[0].shape[1:])
    return Weight(Buffer(name, stacked, dtype, "weight"), parts)


def quantised(name: str, *parts: Part) -> Weight:
    """A matrix as FP8, with the float32 scales of its rows in `name`.scale."""
    plain = weight(name, FP8, *parts)
    return replace(plain, scale=Buffer(_scale(name), plain.buffer.shape[:1], torch.float32, "weight"))


def matrix(buffers: BufferSet, name: str) -> Matrix:
    """What `weight` or `quantised` has put there."""
    return Quantised(buffers[name], buffers[_scale(name)]) if _scale(name) in buffers else buffers[name]


def _scale(name: str) -> str:
    return f"{name}.scale"


def centred(name: str, key: str, width: int) -> Weight:
    """The gain of a zero-centred norm, 1 + weight in float32."""
    return weight(name, torch.float32, Part(key, (width,), lambda w: w + 1))


def load(weights: Iterable[Weight], checkpoint: Checkpoint, buffers: BufferSet, tell: Tell = tell_nobody) -> None:
    """Copy every part into its rows; what is quantised is, where its buffer lies, piece by piece."""
    weights = list(weights)
    done, all_values = 0, sum(part.values for item in weights for part in item.parts)
    for item in weights:
        target = buffers[item.buffer.name]
        row = 0
        for part in item.parts:
            for piece in part.pieces(checkpoint.read(part.name), target):
                rows = slice(row, row + piece.shape[0])
                if item.scale is not None:
                    piece, scale = quantise(piece.to(target.device))
                    buffers[item.scale.name][rows].copy_(scale)
                target[rows].copy_(piece)
                row += piece.shape[0]
            done += part.values
            tell(done / all_values)


class Scope:
    """The buffers below a prefix, so that a layer names its own weights alone."""

    def __init__(self, buffers: BufferSet, prefix: str) -> None:
        self._buffers = buffers
        self._prefix = prefix

    def __getitem__(self, name: str) -> Tensor:
        return self._buffers[self._prefix + name]
