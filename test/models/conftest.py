# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Small policies, running ones, and what the same weights give in transformers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from flashrt_ros.models.hybrid import Hybrid
from flashrt_ros.models.observation import ModelObservation
from flashrt_ros.models.ops import Ops
from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.runtime.backend import CpuBackend
from flashrt_ros.runtime.plan import Plan, Work


class Live:
    """A policy whose plan has been captured."""

    def __init__(self, model: Hybrid, ops: Ops | None = None) -> None:
        self.model = model
        self.plan = Plan(CpuBackend(ops or Ops(), threads=1), model, [], model.manifest())
        self.buffers = self.plan.buffers
        model.load_weights(self.buffers)
        self.plan.capture()

    def run(self, work: Work) -> None:
        self.plan.clear_faults()
        for step in work.steps:
            self.plan.run(step)
        assert self.plan.fence() == ""

    def empty(self) -> None:
        for spec in self.buffers.state():
            self.buffers[spec.name].zero_()

    def say(self, count: int, stops: Sequence[int] = (), drafts: bool = True) -> list[list[int]]:
        """What each step says, in tokens."""
        steps: list[list[int]] = []
        self.run(Work((self.model.speech.begin(),)))
        while (said := sum(map(len, steps))) < count and not (steps and steps[-1][-1] in stops):
            self.run(Work((self.model.speech.step(stops, count - said if drafts else 1, said),)))
            steps.append(self.model.speech.said(self.buffers))
        return steps

    def state(self) -> dict[str, bytes]:
        position = {"position": int(self.buffers["position"])}
        names = [spec.name for spec in self.buffers.state()]
        return {name: self.buffers.live_bytes(name, position).numpy().tobytes() for name in names}

    def observation(self, seed: int) -> ModelObservation:
        random = np.random.default_rng(seed)
        spec = self.buffers.specs["images"]
        proprio = random.normal(size=len(self.model.config.state_names)).astype(np.float32)
        return ModelObservation(random.integers(0, 256, spec.shape, dtype=np.uint8), proprio)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded default policy."""
    return write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def live() -> Callable[..., Live]:
    return lambda folder, ops=None: Live(Hybrid.from_folder(folder), ops)


@pytest.fixture
def reference() -> Callable[[Path], Any]:
    """The backbone of a checkpoint folder, as transformers computes it."""
    transformers = pytest.importorskip("transformers", reason="needs requirements/test.txt")

    def load(folder: Path) -> Any:
        values = json.loads((folder / "config.json").read_text())
        config = transformers.Qwen3_5Config(**values)
        config._attn_implementation = "eager"
        model = transformers.Qwen3_5ForConditionalGeneration(config).eval()
        prefix = "qwen_vl_interface.model."
        tensors = load_file(folder / "model.safetensors")
        backbone = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        missing, unexpected = model.load_state_dict(backbone, strict=False)
        assert set(missing) <= {"lm_head.weight"}
        assert not unexpected
        model.tie_weights()
        return model

    return load


@pytest.fixture
def pixels() -> Callable[[np.ndarray, Any], dict[str, torch.Tensor]]:
    """What the image processor of transformers makes of images [views, height, width, 3]."""
    transformers = pytest.importorskip("transformers", reason="needs requirements/test.txt")

    def process(images: np.ndarray, vision: Any) -> dict[str, torch.Tensor]:
        processor = transformers.Qwen2VLImageProcessorPil(
            do_resize=False,
            image_mean=[0.5] * 3,
            image_std=[0.5] * 3,
            patch_size=vision.patch_size,
            temporal_patch_size=vision.temporal_patch_size,
            merge_size=vision.spatial_merge_size,
        )
        return dict(processor(images=list(images), input_data_format="channels_last", return_tensors="pt"))

    return process
