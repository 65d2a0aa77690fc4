# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""pi0 and pi0.5 with random weights, which no file holds: what benchmarks run."""

from __future__ import annotations

import zlib
from pathlib import Path

import torch
from torch import Tensor

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.pi0_config import Pi0Config
from flashrt_ros.models.pi0_modules import Pi0Modules
from flashrt_ros.models.tiny_pi0 import random_tensor


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

    def digests(self) -> dict[str, str]:
        """What stands for the checksums of files."""
        return {"random": f"seed {self._seed} on {self._device}"}
