# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The training loop: every step is a function of the seed and its number, so that it can stop and go on anywhere."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from flashrt_ros.demo.dataset import Dataset
from flashrt_ros.demo.train_model import Batch, LossWeights, Noise, TrainModel, total
from flashrt_ros.policy.normalise import EPSILON

_BUCKETS = (4, 5, 6, 8, 10, 14)  # observations; contexts of a batch come from one bucket, padded alike
_ROWS_UNIT = 64
_STATE = "training.safetensors"
_BETA = (1.5, 1.0)
_TIME_SPAN = 0.999


@dataclass(frozen=True, slots=True)
class Settings:
    """What decides a training run, with its data and its start.

    Attributes:
        steps: in all.
        batch: contexts a step.
        samples: noisy chunks an observation.
        rate: highest learning rate; it rises over `warm_up` steps and falls as a cosine to `rate * last`.
        decay: weight decay of matrices.
        average: of the weights that are exported, per step.
        clip: largest norm of the gradient.
        noise: standard deviation that is added to pixels, of 255.
    """

    steps: int
    batch: int = 256
    samples: int = 4
    rate: float = 8e-4
    warm_up: int = 150
    last: float = 0.02
    decay: float = 0.02
    average: float = 0.998
    clip: float = 1.0
    noise: float = 4.0
    seed: int = 0
    losses: LossWeights = field(default_factory=LossWeights)


class Trainer:
    """Weights, their averages, the optimizer, and what happened so far.

    Attributes:
        step: steps done.
        weights: float32, under canonical names.
        averages: of the weights.
        history: of each step, the losses.
    """

    def __init__(
        self,
        model: TrainModel,
        start: Mapping[str, Tensor],
        dataset: Dataset,
        settings: Settings,
        device: torch.device,
    ) -> None:
        self.settings = settings
        self.step = 0
        self.history: list[dict[str, float]] = []
        self.weights = {name: w.clone().to(device).requires_grad_() for name, w in start.items()}
        self.averages = {name: w.detach().clone() for name, w in self.weights.items()}
        self._model = model
        self._dataset = dataset
        self._device = device
        self._statistics = dataset.statistics()
        self._scale = {
            part: tuple(torch.tensor(values[key], dtype=torch.float32, device=device) for key in ("mean", "std"))
            for part, values in self._statistics.items()
        }
        matrices = [w for w in self.weights.values() if w.dim() > 1]
        vectors = [w for w in self.weights.values() if w.dim() <= 1]
        groups = [{"params": matrices, "weight_decay": settings.decay}, {"params": vectors, "weight_decay": 0.0}]
        self._optimizer = torch.optim.AdamW(groups, lr=settings.rate, betas=(0.9, 0.98))
        counts = (dataset.sequences["first_rows"] >= 0).sum(dim=1).cpu().numpy()
        self._buckets = [
            np.flatnonzero((counts > low) & (counts <= high))
            for low, high in zip((0, *_BUCKETS), _BUCKETS, strict=False)
        ]

    def run_step(self) -> dict[str, float]:
        """Do the next step; returns its losses."""
        s = self.settings
        random = torch.Generator(self._device).manual_seed((s.seed << 32) + self.step)
        batch = self.batch(self._draw())
        for group in self._optimizer.param_groups:
            group["lr"] = s.rate * _schedule(self.step, s)
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda"):
            losses = self._model.losses(
                self.weights, batch, self._augment(batch.images, random), self._noise(batch, random)
            )
            loss = total(losses, s.losses)
        self._optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.weights.values(), s.clip)
        self._optimizer.step()
        keep = min(s.average, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.averages.values()), list(self.weights.values()), 1 - keep)
        numbers = torch.stack([*losses.values(), norm]).tolist()
        entry = dict(zip((*losses, "gradient"), numbers, strict=True))
        if not math.isfinite(sum(numbers)):
            raise FloatingPointError(f"step {self.step}: losses {entry}; lower the learning rate")
        self.history.append(entry)
        self.step += 1
        return entry

    def batch(self, chosen: Tensor) -> Batch:
        """Gather contexts by their numbers in the dataset."""
        data, sequences = self._dataset, self._dataset.sequences
        picked = {name: values[chosen] for name, values in sequences.items()}
        rows = -int(-picked["rows"].max() // _ROWS_UNIT) * _ROWS_UNIT
        observed, first_rows = picked["observed"].long(), picked["first_rows"].long()
        count = int((observed >= 0).sum(dim=1).max())
        observed, first_rows = observed[:, :count], first_rows[:, :count]
        index = observed.clamp(min=0)
        return Batch(
            images=data.images[index],
            state=self._normalised("state", data.state[index]),
            actions=self._normalised("actions", data.actions[index]),
            tokens=picked["tokens"][:, :rows].long(),
            image_rows=picked["image_rows"][:, :rows].long(),
            rope=picked["rope"][..., :rows].long(),
            labels=picked["labels"][:, :rows].long(),
            first_rows=first_rows.clamp(min=0),
            real=observed >= 0,
        )

    def _normalised(self, part: str, values: Tensor) -> Tensor:
        mean, std = self._scale[part]
        return (values - mean) / (std + EPSILON)

    def save(self, folder: Path) -> None:
        """Write everything that the next steps depend on; a stop at any moment leaves the last whole state."""
        tensors = {f"weights.{name}": w.detach() for name, w in self.weights.items()}
        tensors |= {f"averages.{name}": w for name, w in self.averages.items()}
        for name, w in self.weights.items():
            tensors |= {f"optimizer.{key}.{name}": value for key, value in self._optimizer.state[w].items()}
        data = {"demonstrations": self._dataset.size, "observations": len(self._dataset.state)}
        progress = {
            "settings": asdict(self.settings),
            "step": self.step,
            "history": self.history,
            "data": data,
            "statistics": self._statistics,
        }
        aside = folder / f"{_STATE}.tmp"
        save_file(tensors, aside, {"progress": json.dumps(progress)})
        os.replace(aside, folder / _STATE)

    def load(self, folder: Path) -> bool:
        """Go on where `save` was; False: it never was.

        Raises:
            ValueError: it was saved with other settings.
        """
        path = folder / _STATE
        if not path.exists():
            return False
        progress = read_progress(folder)
        if progress["settings"] != asdict(self.settings):
            raise ValueError(
                f"{path} was written with other settings, {progress['settings']}: use them or another folder"
            )
        tensors = load_file(path, device=str(self._device))
        with torch.no_grad():
            for name, w in self.weights.items():
                w.copy_(tensors[f"weights.{name}"])
                self.averages[name].copy_(tensors[f"averages.{name}"])
                keys = ("step", "exp_avg", "exp_avg_sq")
                self._optimizer.state[w] = {key: tensors[f"optimizer.{key}.{name}"].clone() for key in keys}
                self._optimizer.state[w]["step"] = self._optimizer.state[w]["step"].cpu()
        self.step, self.history = progress["step"], progress["history"]
        return True

    def _draw(self) -> Tensor:
        random = np.random.default_rng((self.settings.seed, self.step))
        sizes = np.array([len(bucket) for bucket in self._buckets], dtype=np.float64)
        bucket = self._buckets[random.choice(len(sizes), p=sizes / sizes.sum())]
        chosen = random.choice(bucket, min(self.settings.batch, len(bucket)), replace=False)
        return torch.from_numpy(chosen).to(self._device)

    def _augment(self, images: Tensor, random: torch.Generator) -> Tensor:
        """Vary gain and tint of each context's images, and add noise to the pixels."""
        count, device = len(images), images.device
        gain = 1 + 0.3 * (torch.rand(count, 1, 1, 1, 1, 1, device=device, generator=random) - 0.5)
        tint = 1 + 0.1 * (torch.rand(count, 1, 1, 1, 1, 3, device=device, generator=random) - 0.5)
        noise = torch.randn(images.shape, device=device, generator=random) * self.settings.noise
        return (images.float() * (gain * tint) + noise).clamp_(0, 255)

    def _noise(self, batch: Batch, random: torch.Generator) -> Noise:
        """Half of the times are those at which the policy asks for velocities, half are drawn as in GR00T."""
        count, observations, horizon, joints = batch.actions.shape
        shape = (count, observations, self.settings.samples)
        steps = self._model.config.head.steps
        asked = torch.randint(steps, shape, device=self._device, generator=random) / steps
        # Beta(1.5, 1) through its inverse, and (span - x) / span as in GR00T
        uniform = torch.rand(shape, device=self._device, generator=random)
        drawn = ((_TIME_SPAN - uniform ** (1 / _BETA[0])) / _TIME_SPAN).clamp(0.0, 0.999)
        half = torch.rand(shape, device=self._device, generator=random) < 0.5
        actions = torch.randn((*shape, horizon, joints), device=self._device, generator=random)
        return Noise(actions, torch.where(half, asked, drawn))


def read_progress(folder: Path) -> dict[str, Any]:
    """Settings, step and history of the training in a folder."""
    with safe_open(folder / _STATE, framework="pt") as file:
        progress: dict[str, Any] = json.loads(file.metadata()["progress"])
    return progress


def read_averages(folder: Path) -> dict[str, Tensor]:
    """The averaged weights of the training in a folder."""
    prefix = "averages."
    tensors = load_file(folder / _STATE)
    return {name.removeprefix(prefix): w for name, w in tensors.items() if name.startswith(prefix)}


def _schedule(step: int, s: Settings) -> float:
    if step < s.warm_up:
        return (step + 1) / s.warm_up
    done = min((step - s.warm_up) / max(s.steps - s.warm_up, 1), 1.0)
    return s.last + (1 - s.last) * 0.5 * (1 + math.cos(math.pi * done))
