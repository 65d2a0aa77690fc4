# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From a checkpoint folder to a policy that is ready to run."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.observation import ModelObservation
from flashrt_ros.models.policy_model import PolicyModel
from flashrt_ros.policy.device import choose
from flashrt_ros.policy.opening import open_checkpoint
from flashrt_ros.policy.processing import Processor
from flashrt_ros.policy.state import session_buffers
from flashrt_ros.runtime.backend import Backend
from flashrt_ros.runtime.errors import DeviceRefusalError, ErrorCode, FlashrtError
from flashrt_ros.runtime.manifest import Manifest
from flashrt_ros.runtime.plan import Plan, Work
from flashrt_ros.runtime.progress import Tell

Progress = Callable[[str], None]

_TOLD_EVERY = 1.0
"""Seconds between two words about the same step."""

CAPSULE_BYTES = (1 << 30) + (256 << 20)
"""Device memory for capsules and the journal, unless more or less is asked for: a session's own budgets for them."""


@dataclass(frozen=True, eq=False, slots=True)
class Policy:
    """A model, its stages and buffers on a device, and what surrounds it."""

    plan: Plan
    model: PolicyModel
    processor: Processor

    def manifest(self) -> Manifest:
        """What must be equal for a capsule's bytes to fit this policy."""
        return self.plan.manifest()


def load_policy(
    path: str | Path,
    device: str = "auto",
    threads: int = 1,
    progress: Progress = lambda step: None,
    contract: Mapping[str, str] | None = None,
    precision: str = "auto",
    capsule_bytes: int = CAPSULE_BYTES,
    views: Sequence[str] | None = None,
    tensors: Checkpoint | None = None,
    weights: str = "auto",
) -> Policy:
    """Load a checkpoint, capture its stages and run each of them once.

    Args:
        path: folder with config.json, a tokenizer, statistics and *.safetensors.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        threads: of the CPU; results are equal to the byte for equal numbers alone.
        progress: is told each step before it begins, and how far long ones are; it may raise to stop the loading.
        contract: its part of the manifest, where a robot's contract gives the policy its inputs.
        precision: "float32", "bfloat16", or "auto": float32 on a CPU, bfloat16 on a GPU.
        capsule_bytes: memory of a GPU that capsules and the journal may fill.
        views: the cameras there are, for a policy that can do with some of its own.
        tensors: weights in place of those in the folder's *.safetensors.
        weights: "fp8" stores those of the action expert of pi0 and pi0.5 as float8_e4m3fn; "auto": as `precision`.

    Raises:
        FlashrtError: BAD_CHECKPOINT, naming what is wrong; BAD_REQUEST for device, precision, weights, threads or
            capsule_bytes; NOT_SUPPORTED, the policy has no FP8 weights; DEVICE, there is no such device.
        DeviceRefusalError: it has not enough memory, or a kernel does not compile; what was taken is given back.
    """
    if type(threads) is not int or threads < 1:
        raise FlashrtError(ErrorCode.BAD_REQUEST, f"threads {threads!r}: give an int, 1 or more")
    if type(capsule_bytes) is not int or capsule_bytes < 0:
        raise FlashrtError(ErrorCode.BAD_REQUEST, f"capsule_bytes {capsule_bytes!r}: give an int, 0 or more")
    chosen = choose(device)
    dtype, fp8 = chosen.precision(precision), chosen.fp8(weights)
    progress(f"device {chosen.name}: {chosen.why}")
    progress(f"reading the headers of {path}")
    opened = open_checkpoint(path, dtype, views, tensors, fp8)
    model = opened.model
    processor = Processor(model.config, opened.prompts, opened.normaliser)
    manifest = opened.manifest(_percent(progress, "taking the checksums of the weights"))
    if contract is not None:
        manifest["contract"] = dict(contract)
    try:
        plan = _make_plan(lambda: chosen.backend(threads, capsule_bytes), model, manifest, progress)
    except (DeviceRefusalError, torch.OutOfMemoryError) as refused:
        traceback.clear_frames(refused.__traceback__)  # it is they that hold what was taken
        gc.collect()
        raise DeviceRefusalError(str(refused)) from None
    return Policy(plan, model, processor)


def _make_plan(take: Callable[[], Backend], model: PolicyModel, manifest: Manifest, progress: Progress) -> Plan:
    progress("allocating buffers")
    plan = Plan(take(), model, session_buffers(model.config), manifest)
    model.load_weights(plan.buffers, _percent(progress, "reading the weights"))
    plan.capture(_percent(progress, "capturing the stages"))
    progress("warming up")
    warm_up(plan, model)
    return plan


def _percent(progress: Progress, what: str) -> Tell:
    """Tells of a work that begins now, and now and then how much of it is done."""
    progress(what)
    told = time.monotonic()

    def tell(part: float) -> None:
        nonlocal told
        if time.monotonic() - told >= _TOLD_EVERY:
            progress(f"{what}: {100 * part:.0f} %")
            told = time.monotonic()

    return tell


def warm_up(plan: Plan, model: PolicyModel) -> None:
    """Run episodes of zeros until each stage that an instruction can reach has run; the state is zero behind them.

    Raises:
        FlashrtError: BAD_CHECKPOINT if one comes out as NaN or infinity.
    """
    config = model.config
    images = np.zeros((len(config.views), *config.image_size, 3), np.uint8)
    seen = ModelObservation(images, np.zeros(config.state_dim, np.float32))
    cold = {stage.name for stage in model.stages()}
    plan.clear_faults()
    for count in range(config.max_instruction_tokens, 0, -1):
        tokens = np.zeros(count, np.int64)
        segments = [step for work in (model.instruct(tokens), model.observe(seen, tokens)) for step in work.steps]
        others = [model.act(), model.sample(0, 0)]
        if model.speech is not None:
            others.append(Work((model.speech.begin(), model.speech.step((), model.speech.rows, 0))))
        behind = [work for work in others if not cold.isdisjoint(s.stage for s in work.steps)]
        steps = [*segments, *(step for work in behind for step in work.steps)]
        if cold.isdisjoint(step.stage for step in steps):
            continue
        for step in steps:
            plan.run(step)
        cold -= {step.stage for step in steps}
        for spec in plan.buffers.state():
            plan.buffers[spec.name].zero_()
    trouble = plan.fence()
    if trouble:
        raise FlashrtError(
            ErrorCode.BAD_CHECKPOINT, f"policy {config.name}: fed with zeros, {trouble}; mend its weights"
        )
