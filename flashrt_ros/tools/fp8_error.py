# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What FP8 weights cost pi0 and pi0.5: errors of the weights, and of the actions that they give."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from torch import Tensor

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.observation import ModelObservation
from flashrt_ros.models.ops import Ops
from flashrt_ros.models.pi0_config import Pi0Config
from flashrt_ros.models.pi0_modules import Pi0Modules
from flashrt_ros.models.reference.quantised import dequantised, quantise
from flashrt_ros.policy.opening import Folder
from flashrt_ros.runtime.backend import CpuBackend
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.plan import Plan

Progress = Callable[[str], None]

_TOKENS = 16
"""Of the prompt that actions are compared with."""


@dataclass(frozen=True, slots=True)
class WeightError:
    """One kind of weight: |w - w'| / |w| of its rows, w rounded to bfloat16 and w' to FP8, in Euclidean norms."""

    kind: str
    rows: int
    largest: float
    mean: float


@dataclass(frozen=True, slots=True)
class ActionError:
    """A chunk with FP8 weights against that with bfloat16 ones, in units of the normalised actions.

    `scale` is the root of the mean square of the latter.
    """

    largest: float
    mean: float
    scale: float


def weight_errors(checkpoint: Checkpoint, config: Pi0Config, progress: Progress) -> list[WeightError]:
    """The error of each kind of weight that FP8 is for, in the order of a layer."""
    found: dict[str, list[Tensor]] = {}
    for item in Pi0Modules.build(config, torch.bfloat16, fp8=True).expert.weights():
        for part in item.parts if item.scale is not None else ():
            progress(f"quantising {part.name}")
            w = checkpoint.read(part.name)
            plain = w.bfloat16().float()
            size = plain.norm(dim=1).clamp_min(torch.finfo(torch.float32).tiny)
            found.setdefault(part.name.split(".")[-2], []).append((dequantised(quantise(w)) - plain).norm(dim=1) / size)
    rows = {kind: torch.cat(errors) for kind, errors in found.items()}
    return [WeightError(kind, len(row), float(row.max()), float(row.mean())) for kind, row in rows.items()]


def action_error(folder: Folder, progress: Progress, seed: int = 0) -> ActionError:
    """The error of one chunk, of random images, state, tokens and noise; BAD_CHECKPOINT if one is not finite."""
    chunks = []
    for fp8 in (False, True):
        kind = "FP8" if fp8 else "bfloat16"
        model = folder.model(torch.bfloat16, None, fp8)
        progress(f"{kind} weights: reading them")
        plan = Plan(CpuBackend(Ops(), os.cpu_count() or 1), model, [], {})
        model.load_weights(plan.buffers)
        plan.capture()
        random, c = np.random.default_rng(seed), model.config
        images = random.integers(0, 256, (len(c.views), *c.image_size, 3), dtype=np.uint8)
        seen = ModelObservation(images, random.normal(size=c.state_dim).astype(np.float32))
        tokens = random.integers(0, folder.tokenizer().largest_text_token, min(_TOKENS, c.max_instruction_tokens))
        steps = (*model.observe(seen, tokens).steps, *model.act().steps)
        plan.clear_faults()
        for number, step in enumerate(steps, 1):
            progress(f"{kind} weights: {step.stage}, {number} of {len(steps)}")
            plan.run(step)
        trouble = plan.fence()
        if trouble:
            raise FlashrtError(
                ErrorCode.BAD_CHECKPOINT, f"{kind} weights: of random inputs, {trouble}; mend the weights"
            )
        chunks.append(plan.buffers["chunk"][:, : c.action_dim].clone())
    plain, found = chunks
    error = (found - plain).abs()
    return ActionError(float(error.max()), float(error.mean()), float(plain.square().mean().sqrt()))


def weights_table(errors: Sequence[WeightError]) -> RenderableType:
    """The errors of rows, for people."""
    made = Table("FP8 against bfloat16", "rows", "largest error", "mean error", box=SIMPLE_HEAD)
    for row in errors:
        made.add_row(row.kind, str(row.rows), f"{row.largest:.4f}", f"{row.mean:.4f}")
    return made


def actions_line(error: ActionError) -> str:
    """The errors of a chunk, for people."""
    return (
        f"a random chunk of FP8 weights against bfloat16: largest error {error.largest:.4g}, mean {error.mean:.4g}, of "
        f"normalised actions that are {error.scale:.4g} in size"
    )
