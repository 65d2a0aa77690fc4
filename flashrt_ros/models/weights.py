# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How checkpoint tensors become weight buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.runtime.buffers import Buffer, BufferSet


@dataclass(frozen=True, slots=True)
class Part:
    """A checkpoint tensor: its name, its shape in the file, and what is done to it before it is stored."""

    name: str
    shape: tuple[int, ...]
    transform: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight buffer and the checkpoint tensors that are stacked in it along the first dimension."""

    buffer: Buffer
    parts: tuple[Part, ...]


def weight(name: str, dtype: torch.dtype, *parts: Part, shape: tuple[int, ...] | None = None) -> Weight:
    """A weight whose shape is that of its stacked parts, unless a transform makes it `shape`."""
    stacked = shape or (sum(part.shape[0] for part in parts), *parts[0].shape[1:])
    return Weight(Buffer(name, stacked, dtype, "weight"), parts)


def centred(name: str, key: str, width: int) -> Weight:
    """The gain of a zero-centred norm, 1 + weight in float32."""
    return weight(name, torch.float32, Part(key, (width,), lambda w: w.float() + 1))


def load(weights: Iterable[Weight], checkpoint: Checkpoint, buffers: BufferSet) -> None:
    """Copy every part into its rows."""
    for item in weights:
        target = buffers[item.buffer.name]
        row = 0
        for part in item.parts:
            tensor = checkpoint.read(part.name)
            if part.transform is not None:
                tensor = part.transform(tensor)
            target[row : row + tensor.shape[0]].copy_(tensor)
            row += tensor.shape[0]


class Scope:
    """The buffers below a prefix, so that a layer names its own weights alone."""

    def __init__(self, buffers: BufferSet, prefix: str) -> None:
        self._buffers = buffers
        self._prefix = prefix

    def __getitem__(self, name: str) -> Tensor:
        return self._buffers[self._prefix + name]
