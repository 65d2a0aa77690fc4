# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""pi0 and pi0.5 on the GPU against cases recorded from openpi's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.config import read_json
from flashrt_ros.models.observation import ModelObservation
from flashrt_ros.models.ops import Ops
from flashrt_ros.models.pi0 import Pi0
from flashrt_ros.models.pi0_config import VIEWS, read_pi0
from flashrt_ros.models.pi0_guidance import Guidance
from flashrt_ros.models.reference.flow import Flow
from flashrt_ros.models.synthetic_pi0 import RandomPi0Checkpoint
from flashrt_ros.runtime.backend import Backend, CpuBackend
from flashrt_ros.runtime.plan import Plan

DATA = Path(__file__).parent.parent / "data"
FACTOR = 1.5
"""How many times the error of plain torch in bfloat16 the GPU's may be."""

Recorded = dict[str, torch.Tensor]


def backend(device: str, case: Recorded, views: list[str]) -> Backend:
    """One that takes images and noise from the case."""
    cut = torch.nn.functional.unfold(torch.cat([case[f"image.{view}"] for view in views]), 14, stride=14)
    pixels, noise = cut.transpose(1, 2).flatten(0, 1).to(device), case["noise"][0].to(device)

    class Given:
        def patches(self, images: torch.Tensor, patch: int, merge: int, out: torch.Tensor) -> None:
            out.copy_(pixels)

        def normals(self, generator: torch.Tensor, out: torch.Tensor) -> None:
            out.copy_(noise)

    if device == "cpu":
        return CpuBackend(type("Ops", (Given, Ops), {})())
    from flashrt_ros.models.cuda.ops import CudaOps
    from flashrt_ros.runtime.cuda.backend import CudaBackend

    return CudaBackend(type("Ops", (Given, CudaOps), {}), 1 << 20)


def run(
    name: str, case: Recorded, device: str, dtype: torch.dtype, fp8: bool = False, given: int = 0
) -> tuple[Plan, list[torch.Tensor]]:
    """A plan that has drawn the chunk of a case, its first rows perhaps given, and the velocities of its steps."""
    views = [view for view in VIEWS if case[f"image_mask.{view}"]]
    extra = {"views": views, "steps": len(case["time"]), "prompt_sizes": [5, 12], "prefix_lock": given > 0}
    model = Pi0(read_json(DATA / name / "config.json"), extra, Checkpoint(DATA / name), dtype, fp8=fp8)
    plan = Plan(backend(device, case, views), model, [], {})
    model.load_weights(plan.buffers)
    plan.capture()
    tokens = case["tokens"][0][case["token_mask"][0].bool()].long().numpy()
    seen = ModelObservation(np.zeros((len(views), 56, 56, 3), np.uint8), case["state"][0].numpy())
    velocities = []
    target = case["noise"][0].flip(0).numpy()
    guidance = Guidance(target, np.zeros(len(target), np.float32), given) if given else None
    for step in (*model.observe(seen, tokens).steps, *model.act(guidance).steps):
        plan.run(step)
        if step.stage == "denoise_step":
            velocities.append(plan.buffers["velocity"].clone())
    assert plan.fence() == ""
    return plan, velocities


def errors(name: str, case: Recorded, device: str, dtype: torch.dtype) -> dict[str, float]:
    """Largest (float32) or mean (bfloat16) error of the prefix's keys and values, of velocities, and of the actions."""
    plan, velocities = run(name, case, device, dtype)
    image = [case[f"image_mask.{view}"].bool().repeat_interleave(16) for view in VIEWS]
    live = torch.cat((*image, case["token_mask"][0].bool()))
    found = {
        f"{part}.{layer}": plan.buffers[f"cache.{layer}.{part}"][: live.sum(), 0].cpu().float()
        - case[f"prefix_{part}.{layer}"][0, 0, live]
        for layer in range(3)
        for part in ("key", "value")
    }
    found["velocity"] = torch.stack(velocities).cpu() - case["velocity"][:, 0]
    found["actions"] = plan.buffers["chunk"].cpu() - case["actions"][0]
    return {
        key: float(value.abs().max() if dtype == torch.float32 else value.abs().mean()) for key, value in found.items()
    }


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("name", ["pi0_tiny", "pi05_tiny"])
def test_float32_equals_the_recorded_cases(name: str, number: int) -> None:
    case = load_file(DATA / name / f"case{number}.safetensors")
    found = errors(name, case, "cuda", torch.float32)
    print(name, number, found)
    assert max(found.values()) < 1e-4


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("name", ["pi0_tiny", "pi05_tiny"])
def test_bfloat16_errs_no_more_than_plain_torch(name: str, number: int) -> None:
    case = load_file(DATA / name / f"case{number}.safetensors")
    ours, plain = (errors(name, case, device, torch.bfloat16) for device in ("cuda", "cpu"))
    print(name, number, {key: round(ours[key] / plain[key], 3) for key in ours})
    assert all(ours[key] <= FACTOR * plain[key] for key in ours), (ours, plain)


@pytest.mark.parametrize("options", [{"fp8": True}, {"given": 3}], ids=str)
@pytest.mark.parametrize("name", ["pi0_tiny", "pi05_tiny"])
def test_fp8_weights_and_given_rows_give_what_they_give_on_a_cpu(name: str, options: dict[str, Any]) -> None:
    case = load_file(DATA / name / "case0.safetensors")
    exact = run(name, case, "cpu", torch.float32, **options)[0].buffers["chunk"]

    def error(device: str, dtype: torch.dtype) -> torch.Tensor:
        return (run(name, case, device, dtype, **options)[0].buffers["chunk"].cpu() - exact).abs()

    assert error("cuda", torch.float32).max() < 1e-4
    ours, plain = error("cuda", torch.bfloat16), error("cpu", torch.bfloat16)
    print(name, float(ours.mean() / plain.mean()))
    assert ours.mean() <= FACTOR * plain.mean()


SMALL = {
    "action_horizon": 50,
    "max_token_len": 528,
    "image_resolution": [28, 28],
    "vision": {"hidden_size": 32, "intermediate_size": 64, "num_layers": 2, "num_heads": 4, "patch_size": 14},
    "language": {
        "width": 64,
        "depth": 18,
        "mlp_dim": 128,
        "num_heads": 8,
        "num_kv_heads": 1,
        "head_dim": 256,
        "vocab_size": 400,
    },
}
"""All but the action expert, whose sizes are the published ones; so is the prefix's length with two views."""


def chunks(kind: str, dtype: torch.dtype, whole: bool, count: int = 5) -> torch.Tensor:
    """Some chunks behind one observation; with `whole` by the operation for all layers, if there is one."""
    from flashrt_ros.models.cuda.ops import CudaOps
    from flashrt_ros.runtime.cuda.backend import CudaBackend

    extra = {"views": list(VIEWS[:1]), "prompt_sizes": [528]}
    checkpoint = RandomPi0Checkpoint(read_pi0(SMALL, extra, kind == "pi05"), device="cuda")
    model = Pi0(SMALL, extra, checkpoint, dtype)
    apart = type("Apart", (CudaOps,), {"transformer_layers": Flow.transformer_layers})
    plan = Plan(CudaBackend(CudaOps if whole else apart, 1 << 20), model, [], {})
    model.load_weights(plan.buffers)
    plan.capture()
    seen = ModelObservation(np.zeros((1, 28, 28, 3), np.uint8), np.ones(model.config.state_dim, np.float32))
    found = []
    for steps in (model.observe(seen, np.arange(528) % 400).steps, *[model.act().steps] * count):
        for step in steps:
            plan.run(step)
        found.append(plan.buffers["chunk"].clone())
    assert plan.fence() == ""
    return torch.stack(found[1:])


@pytest.mark.parametrize("kind", ["pi0", "pi05"])
def test_all_layers_in_one_kernel_err_no_more_than_each_by_itself(kind: str) -> None:
    exact = chunks(kind, torch.float32, whole=False)
    ours, apart = (chunks(kind, torch.bfloat16, whole) - exact for whole in (True, False))
    print(kind, float(ours.abs().mean() / apart.abs().mean()))
    assert ours.abs().mean() <= FACTOR * apart.abs().mean()
