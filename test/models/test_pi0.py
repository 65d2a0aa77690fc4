# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""pi0 and pi0.5 as a session sees them: files, work, padding, guidance, faults."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.config import read_json
from flashrt_ros.models.observation import ModelObservation
from flashrt_ros.models.ops import Ops
from flashrt_ros.models.pi0 import Pi0
from flashrt_ros.models.pi0_expert import times
from flashrt_ros.models.pi0_guidance import Guidance, guidance_strength
from flashrt_ros.models.tiny_pi0 import write_tiny_pi0
from flashrt_ros.runtime.backend import CpuBackend
from flashrt_ros.runtime.errors import FlashrtError
from flashrt_ros.runtime.plan import Plan, Step, Work

HORIZON, WIDTH = 10, 8
LOCKED = Guidance(np.full((HORIZON, WIDTH), 0.25, np.float32), np.zeros(HORIZON, np.float32), locked=3)


class Live:
    """A policy whose plan has been captured."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        extra = {"prompt_sizes": [8, 24], "steps": 4}
        self.model = Pi0(read_json(folder / "config.json"), extra, Checkpoint(folder), dtype)
        self.plan = Plan(CpuBackend(Ops()), self.model, [], self.model.manifest())
        self.buffers = self.plan.buffers
        self.model.load_weights(self.buffers)
        self.plan.capture()

    def run(self, work: Work) -> torch.Tensor:
        self.plan.clear_faults()
        for step in work.steps:
            self.plan.run(step)
        return self.buffers["chunk"].clone()

    def observe(self, seed: int = 0, tokens: int = 5) -> Work:
        random = np.random.default_rng(seed)
        images = random.integers(0, 256, (3, 28, 28, 3), dtype=np.uint8)
        state = random.normal(size=WIDTH).astype(np.float32)
        return self.model.observe(ModelObservation(images, state), random.integers(0, 400, tokens))


@pytest.fixture(params=["pi0", "pi05"])
def live(request: pytest.FixtureRequest, tmp_path: Path) -> Live:
    return Live(write_tiny_pi0(tmp_path, request.param))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_pi0(tmp_path, "pi0")


def chunk_of(folder: Path) -> torch.Tensor:
    policy = Live(folder)
    policy.run(policy.observe())
    return policy.run(policy.model.act())


def test_work_names_its_rows_and_the_cursor_follows(live: Live) -> None:
    work = live.observe(tokens=5)
    rows = 3 * 4 + 5 + (not live.model.config.adaptive)
    assert ([step.stage for step in work.steps], work.rows, work.first_row) == (["encode_images", "prefix_8"], rows, 0)
    assert [step.stage for step in live.observe(tokens=9).steps] == ["encode_images", "prefix_24"]
    live.run(work)
    assert int(live.buffers["position"]) == rows
    assert live.model.instruct(np.arange(3)).steps == ()
    assert (live.model.act().rows, live.model.act().first_row) == (0, None)


def test_rows_that_pad_a_prompt_change_nothing(live: Live) -> None:
    chunks = []
    for poison in (0, 7):
        encode, prefix = live.observe(tokens=5).steps

        def fill(b, prefix=prefix, poison=poison) -> None:
            prefix.fill(b)
            b["tokens"][5:] = poison

        live.buffers["cache.1.key"].fill_(float("nan") if poison else 0.0)
        live.run(Work((encode, Step(prefix.stage, fill))))
        live.buffers["generator"].zero_()
        chunks.append(live.run(live.model.act()))
    assert live.plan.fence() == ""
    assert torch.equal(chunks[0], chunks[1])


def test_the_same_tensors_in_other_files_give_the_same_chunk(folder: Path, tmp_path: Path) -> None:
    expected, tensors = chunk_of(folder), load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    head = "paligemma_with_expert.paligemma.lm_head.weight"
    embedding = tensors.pop(head)
    tensors["paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight"] = embedding
    tensors["paligemma_with_expert.gemma_expert.lm_head.weight"] = torch.zeros(400, 32)
    names, places = sorted(tensors), {}
    for index, part in enumerate((names[:40], names[40:])):
        save_file({f"model.{name}": tensors[name] for name in part}, folder / f"part{index}.safetensors")
        places |= dict.fromkeys((f"model.{name}" for name in part), f"part{index}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert torch.equal(chunk_of(folder), expected)


def test_bfloat16_files_are_read_as_what_they_hold(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    rounded = {name: value.bfloat16() for name, value in tensors.items()}
    save_file(rounded, folder / "model.safetensors")
    halves = Live(folder)
    save_file({name: value.float() for name, value in rounded.items()}, folder / "model.safetensors")
    whole = Live(folder)
    name = "language.1.gate_up"
    assert torch.equal(halves.buffers[name], whole.buffers[name])
    assert not torch.equal(whole.buffers[name], torch.cat([tensors[key] for key in _gate_up(1)]))


def _gate_up(layer: int) -> list[str]:
    stem = f"paligemma_with_expert.paligemma.model.language_model.layers.{layer}.mlp"
    return [f"{stem}.{part}_proj.weight" for part in ("gate", "up")]


def test_tensors_that_do_not_fit_are_named_and_counted(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if "vision_tower" in name][:14]:
        del tensors[name]
    tensors["state_proj.bias"] = torch.zeros(5)
    tensors["surplus"] = torch.zeros(1)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(FlashrtError) as caught:
        Live(folder)
    message = str(caught.value)
    assert "14 missing: " in message
    assert ", and 4 more; 1 misshapen: state_proj.bias is [5] where the config says [32]; 1 extra: surplus" in message


def test_locked_rows_are_the_targets_own_and_others_see_them(live: Live) -> None:
    live.run(live.observe())
    free = live.run(live.model.act())
    live.buffers["generator"].zero_()
    locked = live.run(live.model.act(LOCKED))
    assert torch.equal(locked[:3], torch.full((3, WIDTH), 0.25))
    assert not torch.equal(locked[3:], free[3:])


def test_guided_rows_come_near_the_target_and_others_hardly_move(live: Live) -> None:
    live.run(live.observe())
    target = live.run(live.model.act()).numpy() + 1.0
    live.buffers["generator"].zero_()
    weight = np.array([1.0, 0.5] + [0.0] * (HORIZON - 2), np.float32)
    guided = live.run(live.model.act(Guidance(target, weight))).numpy()
    missed = np.abs(guided - target).mean(axis=1)
    assert missed[0] < 0.1
    assert missed[0] < missed[1] < 0.9
    assert missed[2:].min() > 0.9


def test_a_sample_is_never_guided(live: Live) -> None:
    live.run(live.observe())
    live.run(live.model.act(LOCKED))
    live.run(live.model.sample(0, 1))
    sampled = live.buffers["sampled"].clone()
    assert not torch.equal(sampled[:3], torch.full((3, WIDTH), 0.25))
    live.run(live.model.act())
    assert torch.equal(live.buffers["chunk"], sampled)


def test_the_strength_of_guidance_is_bounded() -> None:
    strength = guidance_strength(times(10, accumulated=False)).tolist()
    assert strength[0] == 10.0
    assert strength[5] == pytest.approx(2.0)  # s = 1/2: 1 * (1/4 + 1/4) / (1/4)
    assert strength[9] == pytest.approx((0.1 / 0.9) * (0.01 + 0.81) / 0.01, rel=1e-4)


@pytest.mark.parametrize("steps", [1, 2, 5, 20])
def test_no_step_moves_a_row_beyond_its_target(steps: int) -> None:
    strength = guidance_strength(times(steps, accumulated=True))
    assert strength[0] == strength.max() == steps


def test_bfloat16_stays_close_to_float32(folder: Path) -> None:
    exact, rounded = Live(folder), Live(folder, torch.bfloat16)
    chunks = []
    for policy in (exact, rounded):
        policy.run(policy.observe())
        chunks.append(policy.run(policy.model.act()))
    assert rounded.buffers["cache.0.key"].dtype == torch.bfloat16
    assert (chunks[0] - chunks[1]).abs().mean() < 0.05 * chunks[0].abs().max()


def test_values_that_are_not_finite_are_flagged(live: Live) -> None:
    for name, work, fault in (
        ("visual.0.fc2.weight", live.observe(), "image embeddings"),
        ("language.1.down", live.observe(), "keys and values of the prefix"),
        ("expert.0.down", live.model.act(), "actions"),
    ):
        kept = live.buffers[name][0, 0].clone()
        live.buffers[name][0, 0] = torch.nan
        live.run(work)
        assert f"{fault} are not finite" in live.plan.fence()
        live.buffers[name][0, 0] = kept
        live.run(live.observe())
