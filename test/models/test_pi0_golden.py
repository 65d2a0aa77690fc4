# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""pi0 and pi0.5, stage by stage, against cases recorded from openpi's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.config import read_json
from flashrt_ros.models.observation import ModelObservation
from flashrt_ros.models.ops import Ops
from flashrt_ros.models.pi0 import Pi0
from flashrt_ros.models.pi0_config import VIEWS
from flashrt_ros.models.pi0_expert import times
from flashrt_ros.runtime.backend import CpuBackend
from flashrt_ros.runtime.plan import Plan

DATA = Path(__file__).parent.parent / "data"
FP8_BOUND = 0.01
"""Error of actions with FP8 weights, root mean square, relative to that of the actions."""

Recorded = dict[str, torch.Tensor]


class RecordedInputs(Ops):
    """Images and noise of a case, where a policy would cut patches and draw normals."""

    def __init__(self, case: Recorded, views: list[str]) -> None:
        super().__init__()
        self._images = torch.cat([case[f"image.{view}"] for view in views])
        self._noise = case["noise"][0]

    def patches(self, images: torch.Tensor, patch: int, merge: int, out: torch.Tensor) -> None:
        cut = torch.nn.functional.unfold(self._images, patch, stride=patch)
        out.copy_(cut.transpose(1, 2).reshape(out.shape))

    def normals(self, generator: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(self._noise)


def golden(name: str, case: Recorded, dtype: torch.dtype = torch.float32, fp8: bool = False) -> tuple[Pi0, Plan]:
    """The recorded policy with the unmasked views and the steps of a case, its prefix written."""
    views = [view for view in VIEWS if case[f"image_mask.{view}"]]
    extra = {"views": views, "steps": len(case["time"]), "prompt_sizes": [5, 12]}
    model = Pi0(read_json(DATA / name / "config.json"), extra, Checkpoint(DATA / name), dtype, fp8=fp8)
    plan = Plan(CpuBackend(RecordedInputs(case, views)), model, [], {})
    model.load_weights(plan.buffers)
    plan.capture()
    tokens = case["tokens"][0][case["token_mask"][0].bool()].long().numpy()
    images = np.zeros((len(views), 56, 56, 3), np.uint8)
    for step in model.observe(ModelObservation(images, case["state"][0].numpy()), tokens).steps:
        plan.run(step)
    return model, plan


@pytest.fixture(params=[(name, number) for name in ("pi0_tiny", "pi05_tiny") for number in range(3)], ids=str)
def recorded(request: pytest.FixtureRequest) -> tuple[str, Recorded]:
    name, number = request.param
    return name, load_file(DATA / name / f"case{number}.safetensors")


def test_keys_and_values_of_the_prefix_equal_the_recorded_ones(recorded: tuple[str, Recorded]) -> None:
    name, case = recorded
    _, plan = golden(name, case)
    image = [case[f"image_mask.{view}"].bool().repeat_interleave(16) for view in VIEWS]
    live = torch.cat((*image, case["token_mask"][0].bool()))
    assert int(plan.buffers["position"]) == live.sum() + (name == "pi0_tiny")
    for layer in range(3):
        for part in ("key", "value"):
            theirs = case[f"prefix_{part}.{layer}"][0, 0, live]
            ours = plan.buffers[f"cache.{layer}.{part}"][: live.sum(), 0]
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_velocities_and_actions_equal_the_recorded_ones(recorded: tuple[str, Recorded]) -> None:
    name, case = recorded
    model, plan = golden(name, case)
    velocities = []
    for step in model.act().steps:
        plan.run(step)
        if step.stage == "denoise_step":
            velocities.append(plan.buffers["velocity"].clone())
    assert plan.fence() == ""
    torch.testing.assert_close(torch.stack(velocities), case["velocity"][:, 0], rtol=0, atol=1e-5)
    torch.testing.assert_close(plan.buffers["chunk"], case["actions"][0], rtol=0, atol=1e-5)


def test_weights_of_one_byte_give_actions_near_the_recorded_ones(recorded: tuple[str, Recorded]) -> None:
    name, case = recorded
    model, plan = golden(name, case, fp8=True)
    for step in model.act().steps:
        plan.run(step)
    error, scale = plan.buffers["chunk"] - case["actions"][0], case["actions"][0].square().mean().sqrt()
    assert 1e-5 < error.square().mean().sqrt() < FP8_BOUND * scale


def test_times_are_summed_up_as_openpi_does(recorded: tuple[str, Recorded]) -> None:
    time = recorded[1]["time"]
    assert torch.equal(times(len(time), accumulated=True), time)
