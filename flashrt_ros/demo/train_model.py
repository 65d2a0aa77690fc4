# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What is trained: the hybrid policy over whole episodes, its losses, and the chunk that it would act."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from flashrt_ros.demo.sequences import NOTHING
from flashrt_ros.demo.train_backbone import Weights, encode_images, run_mtp, run_text
from flashrt_ros.demo.train_head import velocity
from flashrt_ros.models.config import HybridConfig

_EMBEDDING = "language_model.embed_tokens.weight"


@dataclass(frozen=True, eq=False, slots=True)
class Batch:
    """Contexts of equal padded length.

    Attributes:
        images: [batch, observations, views, height, width, 3], in 0 .. 255.
        state: float32 [batch, observations, joints], normalised.
        actions: float32 [batch, observations, horizon, joints], normalised.
        tokens, image_rows, labels: int64 [batch, rows]; see Sequence.
        rope: int64 [batch, 3, rows].
        first_rows: int64 [batch, observations]; 0 where there is none.
        real: bool [batch, observations].
    """

    images: Tensor
    state: Tensor
    actions: Tensor
    tokens: Tensor
    image_rows: Tensor
    rope: Tensor
    labels: Tensor
    first_rows: Tensor
    real: Tensor


@dataclass(frozen=True, eq=False, slots=True)
class Noise:
    """What a step of training draws: noise [batch, observations, samples, horizon, joints], and times in [0, 1)."""

    actions: Tensor
    time: Tensor


@dataclass(frozen=True, slots=True)
class LossWeights:
    """What each loss counts."""

    flow: float = 1.0
    text: float = 0.2
    mtp: float = 0.05


class TrainModel:
    """Computes from a mapping of tensors, which may be parameters or their averages."""

    def __init__(self, config: HybridConfig, rows_to_observe: int) -> None:
        self.config = config
        self._rows = rows_to_observe

    def condition(self, w: Weights, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Run the backbone.

        Returns:
            embeddings and hidden states [batch, rows, hidden], and the hidden states of each observation's segment
            [batch, observations, rows of it, hidden].
        """
        c, images = self.config, batch.images
        seen = encode_images(w, c.vision, images.flatten(0, 2).float()).view(len(images), -1, c.text.hidden_size)
        x = F.embedding(batch.tokens, w[_EMBEDDING])
        index = batch.image_rows.clamp(min=0).unsqueeze(-1).expand(-1, -1, c.text.hidden_size)
        x = torch.where((batch.image_rows >= 0).unsqueeze(-1), seen.float().gather(1, index), x)
        hidden = run_text(w, c.text, x, batch.rope)
        rows = batch.first_rows.unsqueeze(-1) + torch.arange(self._rows, device=x.device)
        index = rows.flatten(1).unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
        return x, hidden, hidden.gather(1, index).view(*rows.shape, -1)

    def losses(self, w: Weights, batch: Batch, noise: Noise) -> dict[str, Tensor]:
        """Flow-matching loss of all observations, and cross entropy of what is said, by lm_head and by MTP."""
        c = self.config
        x, hidden, condition = self.condition(w, batch)
        target, time = batch.actions.flatten(0, 1).unsqueeze(1), noise.time.flatten(0, 1)
        start = noise.actions.flatten(0, 1)
        step = (time * c.head.time_buckets).long()
        time = (step / c.head.time_buckets)[..., None, None]
        mixed = (1 - time) * start + time * target
        found = velocity(w, c.head, condition.flatten(0, 1), batch.state.flatten(0, 1), mixed, step)
        errors = (found - (target - start)).square().mean(dim=(1, 2, 3))
        real = batch.real.flatten()
        following = F.pad(x[:, 1:], (0, 0, 0, 1))
        further = F.pad(batch.labels[:, 1:], (0, 1), value=NOTHING)
        mtp = run_mtp(w, c.text, hidden, following, batch.rope)
        return {
            "flow": (errors * real).sum() / real.sum(),
            "text": _said(w, hidden, batch.labels),
            "mtp": _said(w, mtp, further),
        }

    def act(self, w: Weights, condition: Tensor, proprio: Tensor, noise: Tensor) -> Tensor:
        """Integrate chunks [n, horizon, joints] from noise, as the policy does."""
        c = self.config.head
        actions = noise.unsqueeze(1)
        for number in range(c.steps):
            step = torch.full((len(noise), 1), int(number / c.steps * c.time_buckets), device=noise.device)
            actions = actions + velocity(w, c, condition, proprio, actions, step) / c.steps
        return actions[:, 0]


def _said(w: Weights, hidden: Tensor, labels: Tensor) -> Tensor:
    logits = F.linear(hidden, w[_EMBEDDING])
    return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=NOTHING)


def total(losses: Mapping[str, Tensor], weights: LossWeights) -> Tensor:
    """The loss that is minimised."""
    return torch.stack([getattr(weights, name) * loss for name, loss in losses.items()]).sum()
