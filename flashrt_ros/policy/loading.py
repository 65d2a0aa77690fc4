# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From a checkpoint folder to a policy that is ready to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.hybrid import Hybrid
from flashrt_ros.models.observation import ModelObservation
from flashrt_ros.policy.device import choose
from flashrt_ros.policy.normalise import Normaliser
from flashrt_ros.policy.processing import Processor
from flashrt_ros.policy.state import session_buffers
from flashrt_ros.policy.tokenizer import Tokenizer
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.manifest import Manifest
from flashrt_ros.runtime.plan import Plan, Work

Progress = Callable[[str], None]

CAPSULE_BYTES = 2 << 30
"""Device memory for capsules and the journal, unless more or less is asked for."""


@dataclass(frozen=True, eq=False, slots=True)
class Policy:
    """A model, its stages and buffers on a device, and what surrounds it."""

    plan: Plan
    model: Hybrid
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
    tensors: Checkpoint | None = None,
) -> Policy:
    """Load a checkpoint, capture its stages and run each of them once.

    Args:
        path: folder with config.json, tokenizer.json, norm_stats.json and *.safetensors.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        threads: of the CPU; results are equal to the byte for equal numbers alone.
        progress: is told each step before it begins; it may raise to stop the loading.
        contract: its part of the manifest, where a robot's contract gives the policy its inputs.
        precision: "float32", "bfloat16", or "auto": float32 on a CPU, bfloat16 on a GPU.
        capsule_bytes: memory of a GPU that capsules and the journal may fill.
        tensors: weights in place of those in the folder's *.safetensors.

    Raises:
        FlashrtError: BAD_CHECKPOINT, naming what is wrong; BAD_REQUEST for device, precision or threads; DEVICE, there
            is no such device, or not enough memory on it.
    """
    if threads < 1:
        raise FlashrtError(ErrorCode.BAD_REQUEST, f"threads {threads}: give 1 or more")
    chosen = choose(device)
    dtype = chosen.precision(precision)
    progress(f"device {chosen.name}: {chosen.why}")
    folder = Path(path)
    if not folder.is_dir():
        raise FlashrtError(
            ErrorCode.BAD_CHECKPOINT, f"checkpoint {folder}: no such folder; name the one with config.json"
        )
    progress(f"reading the headers of {folder}")
    tokenizer = Tokenizer(folder / "tokenizer.json")
    model = Hybrid.from_folder(folder, dtype, tensors)
    config = model.config
    normaliser = Normaliser.load(folder, config.normalisation, config.state_names, config.action_names)
    processor = Processor(config, tokenizer, normaliser)
    _check_vocabulary(tokenizer, config.text.vocab_size)
    progress("taking the checksums of the weights")
    manifest = {
        **model.manifest(),
        "tokenizer": {"sha256": tokenizer.fingerprint},
        "normaliser": {"convention": normaliser.convention, "sha256": normaliser.fingerprint},
    }
    if contract is not None:
        manifest["contract"] = dict(contract)
    progress("allocating buffers")
    plan = Plan(chosen.backend(threads, capsule_bytes), model, session_buffers(config), manifest)
    progress("reading the weights")
    model.load_weights(plan.buffers)
    progress("capturing the stages")
    plan.capture()
    progress("warming up")
    warm_up(plan, model)
    return Policy(plan, model, processor)


def warm_up(plan: Plan, model: Hybrid) -> None:
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
        say = Work((model.speech.begin(), model.speech.step((), model.speech.rows, 0)))
        others = (model.act(), model.sample(0, 0), say)
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


def _check_vocabulary(tokenizer: Tokenizer, vocabulary: int) -> None:
    if tokenizer.largest_token >= vocabulary:
        raise FlashrtError(
            ErrorCode.BAD_CHECKPOINT,
            f"tokenizer.json gives tokens up to {tokenizer.largest_token}, config.json text_config.vocab_size is "
            f"{vocabulary}; they are of different checkpoints",
        )
