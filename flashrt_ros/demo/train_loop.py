# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The training loop: every step is a function of the seed and its number, so that it can stop and go on anywhere."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from flashrt_ros.demo.dataset import Dataset
from flashrt_ros.demo.train_model import Batch, LossWeights, Noise, TrainModel, total
from flashrt_ros.policy.normalise import EPSILONS

LOSSES = ("flow", "text", "mtp")
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
        fused = device.type == "cuda"
        self._optimizer = torch.optim.AdamW(groups, lr=settings.rate, betas=(0.9, 0.98), fused=fused)
        self._buckets = _buckets(dataset)
        self._pool = torch.cuda.graph_pool_handle() if fused else None  # graphs run one after another: one memory
        self._graphs: dict[int, Callable[..., tuple[Tensor, ...]]] = {}

    def run_step(self) -> dict[str, float]:
        """Do the next step; returns its losses."""
        s = self.settings
        random = torch.Generator(self._device).manual_seed((s.seed << 32) + self.step)
        number, chosen = self._draw()
        batch = self.batch(chosen, *self._buckets[number][1:])
        for group in self._optimizer.param_groups:
            group["lr"] = s.rate * _schedule(self.step, s)
        batch, noise = replace(batch, images=self._augment(batch.images, random)), self._noise(batch, random)
        losses = dict(zip(LOSSES, self._losses(number, batch, noise), strict=True))
        self._optimizer.zero_grad()
        total(losses, s.losses).backward()
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

    def batch(self, chosen: Tensor, observations: int, rows: int) -> Batch:
        """Gather contexts by their numbers in the dataset, padded to a number of observations and of rows."""
        data = self._dataset
        picked = {name: values[chosen] for name, values in data.sequences.items()}
        observed = picked["observed"][:, :observations].long()
        index = observed.clamp(min=0)
        return Batch(
            images=data.images[index],
            state=self._normalised("state", data.state[index]),
            actions=self._normalised("actions", data.actions[index]),
            tokens=picked["tokens"][:, :rows].long(),
            image_rows=picked["image_rows"][:, :rows].long(),
            rope=picked["rope"][..., :rows].long(),
            labels=picked["labels"][:, :rows].long(),
            first_rows=picked["first_rows"][:, :observations].long().clamp(min=0),
            real=observed >= 0,
        )

    def _losses(self, number: int, batch: Batch, noise: Noise) -> tuple[Tensor, ...]:
        """The losses of a batch from bucket `number`; on CUDA as a graph, captured when a bucket comes up first."""
        names = list(self.weights)
        images, *inputs = (getattr(batch, item.name) for item in fields(Batch))
        arguments = (images, *inputs, noise.actions, noise.time, *self.weights.values())

        def compute(images: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
            whole = Batch(images, *rest[: len(inputs)])
            drawn = Noise(*rest[len(inputs) : len(inputs) + 2])
            weights = dict(zip(names, rest[len(inputs) + 2 :], strict=True))
            with torch.autocast("cuda", torch.bfloat16, enabled=images.is_cuda, cache_enabled=False):
                found = self._model.losses(weights, whole, drawn)
            return tuple(found[name] for name in LOSSES)

        if not images.is_cuda:
            return compute(*arguments)
        if number not in self._graphs:
            samples = (*(x.clone() for x in arguments[: -len(names)]), *self.weights.values())
            graphed: Any = torch.cuda.make_graphed_callables(compute, samples, pool=self._pool)
            self._graphs[number] = graphed
        return self._graphs[number](*arguments)

    def _normalised(self, part: str, values: Tensor) -> Tensor:
        mean, std = self._scale[part]
        return (values - mean) / (std + EPSILONS["openpi"])

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
        self.step, self.history = progress["step"], progress["history"]
        return True

    def _draw(self) -> tuple[int, Tensor]:
        """The bucket of this step, and contexts of it."""
        random = np.random.default_rng((self.settings.seed, self.step))
        sizes = np.array([len(members) for members, _, _ in self._buckets], dtype=np.float64)
        number = int(random.choice(len(sizes), p=sizes / sizes.sum()))
        members = self._buckets[number][0]
        chosen = random.choice(members, min(self.settings.batch, len(members)), replace=False)
        return number, torch.from_numpy(chosen).to(self._device)

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


def _buckets(dataset: Dataset) -> list[tuple[NDArray[np.int64], int, int]]:
    """Members, observations and rows of each bucket that has members."""
    counts = (dataset.sequences["first_rows"] >= 0).sum(dim=1).cpu().numpy()
    rows = dataset.sequences["rows"].cpu().numpy()
    found = []
    for low, high in zip((0, *_BUCKETS), _BUCKETS, strict=False):
        members = np.flatnonzero((counts > low) & (counts <= high))
        if len(members):
            found.append((members, high, -(-int(rows[members].max()) // _ROWS_UNIT) * _ROWS_UNIT))
    return found


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
