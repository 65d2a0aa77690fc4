# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The plain PyTorch policy that figures are compared with computes the same."""

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
from flashrt_ros.models.tiny_pi0 import write_tiny_pi0
from flashrt_ros.runtime.backend import CpuBackend
from flashrt_ros.runtime.plan import Plan
from flashrt_ros.tools.bench.pi0_plain import PlainPi0


@pytest.mark.parametrize("kind", ["pi0", "pi05"])
def test_it_computes_what_the_policy_does(kind: str, tmp_path: Path) -> None:
    folder = write_tiny_pi0(tmp_path, kind)
    checkpoint = Checkpoint(folder)
    model = Pi0(read_json(folder / "config.json"), {"steps": 3}, checkpoint)
    plan = Plan(CpuBackend(Ops()), model, [], {})
    model.load_weights(plan.buffers)
    plan.capture()
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (3, 28, 28, 3), dtype=np.uint8)
    tokens, state = random.integers(0, 400, 7), random.normal(size=8).astype(np.float32)
    for step in (*model.observe(ModelObservation(images, state), tokens).steps, *model.act().steps):
        plan.run(step)
    noise = torch.empty(10, 8)
    Ops().normals(torch.zeros(2, dtype=torch.int64), noise)
    plain = PlainPi0(model.config, checkpoint, torch.float32, "cpu")
    inputs = (torch.from_numpy(part) for part in (images, tokens, state))
    torch.testing.assert_close(plain(*inputs, noise), plan.buffers["chunk"], rtol=0, atol=1e-4)
