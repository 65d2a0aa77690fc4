# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How checkpoint tensors become weight buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.reference.quantised import FP8, Matrix, Quantised, quantise
from flashrt_ros.runtime.buffers import Buffer, BufferSet


@dataclass(frozen=True, slots=True)
class Part:
    """A checkpoint tensor: its name, its shape in the file, and what is done to it before it is stored."""

    name: str
    shape: tuple[int, ...]
    transform: Callable[[Tensor], Tensor] | None = None


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
    return weight(name, torch.float32, Part(key, (width,), lambda w: w.float() + 1))


def load(weights: Iterable[Weight], checkpoint: Checkpoint, buffers: BufferSet) -> None:
    """Copy every part into its rows; what is quantised is, where its buffer lies, tensor by tensor."""
    for item in weights:
        target = buffers[item.buffer.name]
        row = 0
        for part in item.parts:
            tensor = checkpoint.read(part.name)
            if part.transform is not None:
                tensor = part.transform(tensor)
            rows = slice(row, row + tensor.shape[0])
            if item.scale is not None:
                tensor, scale = quantise(tensor.to(target.device))
                buffers[item.scale.name][rows].copy_(scale)
            target[rows].copy_(tensor)
            row += tensor.shape[0]


class Scope:
    """The buffers below a prefix, so that a layer names its own weights alone."""

    def __init__(self, buffers: BufferSet, prefix: str) -> None:
        self._buffers = buffers
        self._prefix = prefix

    def __getitem__(self, name: str) -> Tensor:
        return self._buffers[self._prefix + name]
