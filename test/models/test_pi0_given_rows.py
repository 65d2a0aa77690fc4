# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Rows that are given to a policy which was trained so (arXiv 2512.05964), against the same in plain PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.config import read_json
from flashrt_ros.models.observation import ModelObservation
from flashrt_ros.models.ops import Ops
from flashrt_ros.models.pi0 import Pi0
from flashrt_ros.models.pi0_expert import time_features, times
from flashrt_ros.models.pi0_guidance import Guidance
from flashrt_ros.models.tiny_pi0 import Kind, write_tiny_pi0
from flashrt_ros.runtime.backend import CpuBackend
from flashrt_ros.runtime.plan import Plan
from flashrt_ros.tools.bench.pi0_plain import Caches, PlainPi0

HORIZON, WIDTH, STEPS = 10, 8, 3


class PlainWithGivenRows(PlainPi0):
    """The first rows are the target's and at time 0 in each step, the others at the time of the step."""

    def given(self, target: torch.Tensor) -> PlainWithGivenRows:
        self._target, rows = target, len(target)
        time = times(STEPS, self.config.accumulated_time)[:, None].repeat(1, HORIZON)
        time[:, :rows] = 0.0
        self._time = torch.stack([time_features(each, self.config.expert.width) for each in time])
        return self

    def denoise(self, caches: Caches, state: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        x = noise.clone()
        for step in range(STEPS):
            x[: len(self._target)] = self._target
            x = x - self._velocity(caches, state, x, step) / STEPS
        x[: len(self._target)] = self._target
        return x


@pytest.mark.parametrize("kind", ["pi0", "pi05"])
@pytest.mark.parametrize("rows", [0, 4, HORIZON])
def test_rows_that_are_given_are_at_time_0(kind: Kind, rows: int, tmp_path: Path) -> None:
    folder = write_tiny_pi0(tmp_path, kind)
    checkpoint = Checkpoint(folder)
    model = Pi0(read_json(folder / "config.json"), {"steps": STEPS, "prefix_lock": True}, checkpoint)
    plan = Plan(CpuBackend(Ops()), model, [], {})
    model.load_weights(plan.buffers)
    plan.capture()
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (3, 28, 28, 3), dtype=np.uint8)
    tokens, state = random.integers(0, 400, 7), random.normal(size=WIDTH).astype(np.float32)
    target = random.normal(size=(HORIZON, WIDTH)).astype(np.float32)
    guidance = Guidance(target, np.zeros(HORIZON, np.float32), rows)
    for step in (*model.observe(ModelObservation(images, state), tokens).steps, *model.act(guidance).steps):
        plan.run(step)
    noise = torch.empty(HORIZON, WIDTH)
    Ops().normals(torch.zeros(2, dtype=torch.int64), noise)
    plain = PlainWithGivenRows(model.config, checkpoint, torch.float32, "cpu").given(torch.from_numpy(target[:rows]))
    expected = plain(torch.from_numpy(images), torch.from_numpy(tokens), torch.from_numpy(state), noise)
    torch.testing.assert_close(expected, plan.buffers["chunk"], rtol=0, atol=1e-4)
