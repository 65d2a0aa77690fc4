# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Where a stage's time goes: the kernels that it launches, each by itself.

The stages are run without their graphs, so that no kernel begins before the one ahead of it has ended; the sum is more
than what a replay takes by what it hides.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flashrt_ros.runtime.plan import Step
from flashrt_ros.tools.bench.stages_run import Rig

_REPEATS = 3
"""The denoising has four steps, and `place` is called before the first repeat alone."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """Launches of one kernel in one replay of a stage, and their seconds together."""

    stage: str
    kernel: str
    launches: float
    seconds: float


def measure_kernels(rig: Rig, position: int) -> list[KernelRow]:
    """Profile each stage on a GPU behind `position` rows, the most expensive kernels first."""
    found = []
    for stage in rig.model.stages():
        steps = [
            step for step in (*rig.observe()[:1], *_appends(rig), *rig.model.act().steps) if step.stage == stage.name
        ]
        if not steps:
            continue
        rig.place(position)
        rig.run(steps[:1])  # sets its inputs
        rig.place(position)
        rig.plan.fence()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(_REPEATS):
                stage.run(rig.plan.backend.ops, rig.plan.buffers)
            torch.cuda.synchronize()
        rows = [
            KernelRow(stage.name, event.key, event.count / _REPEATS, event.self_device_time_total * 1e-6 / _REPEATS)
            for event in profile.key_averages()
            if event.self_device_time_total
        ]
        found += sorted(rows, key=lambda row: -row.seconds)
    return found


def _appends(rig: Rig) -> list[Step]:
    return [step for size in rig.model.stage_sizes for step in rig.text(size)]
