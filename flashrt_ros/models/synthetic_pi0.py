# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""pi0 and pi0.5 of any size with random weights: drawn when they are read, or in a folder. What benchmarks run."""

from __future__ import annotations

import json
import math
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.pi0_config import Pi0Config, read_pi0
from flashrt_ros.models.pi0_modules import Pi0Modules
from flashrt_ros.models.tiny_pi0 import ACTIONS, STATE, Kind, random_tensor, write_without_weights
from flashrt_ros.runtime.progress import Tell, tell_nobody

_CODES = {torch.float32: "F32", torch.bfloat16: "BF16"}
_DRAWN = (1 << 24) + 43
"""Numbers that are drawn for a folder; its tensors repeat them. No width divides it, so that no two rows are equal."""


class RandomPi0Checkpoint(Checkpoint):
    """The tensors that a config asks for, drawn when they are read; equal for equal seeds on one kind of device."""

    def __init__(self, config: Pi0Config, seed: int = 0, device: str = "cpu") -> None:
        """Tensors are drawn on `device`; those that tables are computed from, on the CPU that computes them."""
        self.folder = Path("random")
        self.files = ()
        self._seed, self._device = seed, device
        modules = Pi0Modules.build(config, torch.float32)
        self._derived_from = {part.name for part in modules.expert.sources()}
        self.shapes = modules.tensors(())

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def read(self, name: str) -> Tensor:
        """Draw the tensor, float32."""
        device = "cpu" if name in self._derived_from else self._device
        generator = torch.Generator(device).manual_seed(zlib.crc32(f"{self._seed} {name}".encode()))
        return random_tensor(name, self.shapes[name], generator)

    def digests(self, tell: Tell = tell_nobody) -> dict[str, str]:
        """What stands for the checksums of files."""
        return {"random": f"seed {self._seed} on {self._device}"}


def write_synthetic_pi0(
    folder: Path, values: dict[str, Any], kind: Kind, dtype: torch.dtype, seed: int = 0, **extra: Any
) -> Path:
    """Write a folder as openpi's converter does, its tensors in `dtype`, as fast as the disk takes them.

    Args:
        folder: which.
        values: its config.json.
        kind: pi0 or pi05.
        dtype: float32 or bfloat16.
        seed: of the weights; equal arguments give equal files.
        extra: keys of its flashrt.json.
    """
    named = {"state_names": list(STATE), "action_names": list(ACTIONS), "trained": False, **extra}
    write_without_weights(folder, {**values, "type": kind}, named, "openpi")
    shapes = Pi0Modules.build(read_pi0(values, {}, kind == "pi05"), dtype).tensors(())
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": _CODES[dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    noise = torch.randn(_DRAWN, generator=torch.Generator().manual_seed(seed))

    @cache
    def scaled(scale: float, mean: float) -> memoryview:
        return (noise * scale + mean).to(dtype).view(torch.uint8).numpy().data

    with (folder / "model.safetensors").open("wb", buffering=0) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            is_gain = len(shape) == 1 and name.endswith("weight") and "vision_tower" in name
            data = scaled(0.1 if len(shape) == 1 else math.prod(shape[1:]) ** -0.5, float(is_gain))
            begin, left = zlib.crc32(name.encode()) % _DRAWN * dtype.itemsize, math.prod(shape) * dtype.itemsize
            while left:
                written = file.write(data[begin : begin + left])
                begin, left = (begin + written) % len(data), left - written
    return folder
