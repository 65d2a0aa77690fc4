# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Where a stage's time goes: the kernels that it launches, each by itself.

The stages are run without their graphs, and no kernel begins before the one ahead of it has ended; the sum is more than
what a replay takes by what it hides.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.tools.bench.stages_run import Rig, stage_work

_REPEATS = 3
"""The denoising has four steps, and `place` is called before the first repeat alone."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """Launches of one kernel in one replay of a stage, and their seconds together."""

    stage: str
    kernel: str
    launches: float
    seconds: float


def check_kernels(wanted: bool, device: str) -> None:
    """Refuse with BAD_REQUEST to say where the time goes on a CPU; `device`: "cpu" or "cuda"."""
    if wanted and device != "cuda":
        raise FlashrtError(ErrorCode.BAD_REQUEST, "--kernels needs a GPU; leave it out, or use --device cuda")


def measure_kernels(rig: Rig, position: int) -> list[KernelRow]:
    """Profile each stage on a GPU behind `position` rows, the most expensive kernels first."""
    found = []
    stages = {stage.name: stage for stage in rig.model.stages()}
    rig.plan.backend.ops.cuda.overlapping = False
    for step, _ in stage_work(rig, position):
        rig.place(position)
        rig.run([*rig.observe(), rig.model.speech.begin(), step])  # sets the inputs and the conditioning of the step
        rig.place(position)
        rig.check()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
            for _ in range(_REPEATS):
                stages[step.stage].run(rig.plan.backend.ops, rig.plan.buffers)
            rig.plan.fence()
        rows = [
            KernelRow(step.stage, event.key, event.count / _REPEATS, event.self_device_time_total * 1e-6 / _REPEATS)
            for event in profile.key_averages()
            if event.self_device_time_total
        ]
        found += sorted(rows, key=lambda row: -row.seconds)
    rig.plan.backend.ops.cuda.overlapping = True
    return found
