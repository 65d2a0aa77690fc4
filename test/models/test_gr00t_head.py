# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The action head against cases recorded from StarVLA's own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.config import read_json
from flashrt_ros.models.gr00t_head import ActionHead
from flashrt_ros.models.head_config import read_head
from flashrt_ros.models.ops import Ops
from flashrt_ros.models.section import Section
from flashrt_ros.models.weights import load
from flashrt_ros.runtime.buffers import Buffer, BufferSet

GOLDEN = Path(__file__).parent.parent / "data" / "qwen_gr00t_head_tiny"
CAPACITY = 48


def golden_head(steps: int, include_state: bool = True, **changes: int) -> tuple[ActionHead, BufferSet]:
    values = read_json(GOLDEN / "config.json")["framework"]
    values["action_model"] |= {"num_inference_timesteps": steps, **changes}
    head = ActionHead(read_head(Section(values, "framework"), include_state), CAPACITY, torch.float32)
    checkpoint = Checkpoint(GOLDEN)
    parts = [part for item in head.weights() for part in item.parts] + head.sources()
    if head.config.state_dim:
        checkpoint.check({part.name: part.shape for part in parts})
    inputs = [
        Buffer("condition", (CAPACITY, head.config.cross_width), torch.float32, "input"),
        Buffer("rows", (1,), torch.int64, "input"),
        Buffer("step", (1,), torch.int64, "input"),
    ]
    specs = [*(item.buffer for item in head.weights()), *head.buffers(), *inputs]
    buffers = BufferSet(specs, lambda nbytes, memory: torch.zeros(nbytes, dtype=torch.uint8))
    load(head.weights(), checkpoint, buffers)
    head.derive(checkpoint, buffers)
    return head, buffers


@pytest.mark.parametrize("case", [0, 1, 2])
def test_velocities_and_actions_equal_the_recorded_ones(case: int) -> None:
    recorded = load_file(GOLDEN / f"case{case}.safetensors")
    steps = recorded["velocity"].shape[0]
    head, b = golden_head(steps)
    rows = int(recorded["hidden_mask"].sum())
    b["condition"].fill_(torch.nan)
    b["condition"][:rows] = recorded["hidden"][0, :rows]
    b["rows"].fill_(rows)
    actions, velocity, ops = recorded["noise"][0].clone(), torch.empty_like(recorded["noise"][0]), Ops()
    head.begin(ops, b, b["condition"], b["rows"], recorded["state"][0])
    for step in range(steps):
        b["step"].fill_(step)
        head.velocity(ops, b, actions, b["step"], b["rows"], velocity)
        torch.testing.assert_close(velocity, recorded["velocity"][step, 0], rtol=0, atol=1e-5)
        ops.euler(actions, velocity, 1 / steps, actions)
    torch.testing.assert_close(actions, recorded["actions"][0], rtol=0, atol=1e-5)


def test_a_head_that_is_given_no_state_is_one_without_its_encoder() -> None:
    recorded = load_file(GOLDEN / "case0.safetensors")
    velocities = []
    for changes in ({"include_state": False}, {"state_dim": 0}):
        head, b = golden_head(1, **changes)
        b["condition"][:4] = recorded["hidden"][0, :4]
        b["rows"].fill_(4)
        b["step"].zero_()
        head.begin(Ops(), b, b["condition"], b["rows"], torch.full_like(recorded["state"][0], torch.nan))
        velocities.append(torch.empty_like(recorded["noise"][0]))
        head.velocity(Ops(), b, recorded["noise"][0].clone(), b["step"], b["rows"], velocities[-1])
    assert torch.isfinite(velocities[0]).all()
    assert torch.equal(*velocities)
