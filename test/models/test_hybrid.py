# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The hybrid policy as its session sees it: work, state, padding, restarts, faults."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from flashrt_ros.models.hybrid import AT_CURSOR, Hybrid
from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.runtime.buffers import BufferSet
from flashrt_ros.runtime.errors import FlashrtError
from flashrt_ros.runtime.plan import FAULT, Step, split

TOKENS = np.arange(65, 75)


@pytest.fixture
def policy(tiny: Path, live):
    return live(tiny)


def test_state_buffers_and_their_scopes(policy) -> None:
    scopes = {spec.name: (spec.scope, spec.rows) for spec in policy.buffers.state()}
    linear = {f"{kind}.{layer}": ("context", "") for layer in range(3) for kind in ("recurrent", "conv")}
    assert scopes == {
        **linear,
        "kv.3.key": ("context", "position"),
        "kv.3.value": ("context", "position"),
        **dict.fromkeys(("position", "rope_delta", "condition", "condition_rows", "proprio"), ("context", "")),
        "generator": ("generator", ""),
        "chunk": ("chunk", ""),
        "previous_chunk": ("chunk", ""),
    }


def test_work_names_its_rows_and_the_cursor_follows(policy) -> None:
    model, instruct = policy.model, policy.model.instruct(TOKENS)
    seen = policy.observation(0)
    observe = model.observe(seen, TOKENS)
    assert (instruct.rows, instruct.first_row) == (18, AT_CURSOR)
    assert (observe.rows, observe.first_row) == (22, AT_CURSOR)
    assert model.rows_to_observe(10) == 22
    assert (model.act().rows, model.act().first_row) == (0, None)
    policy.run(instruct)
    assert int(policy.buffers["position"]) == 18
    assert int(policy.buffers["rope_delta"]) == 0
    policy.run(observe)
    assert int(policy.buffers["position"]) == 40
    assert int(policy.buffers["rope_delta"]) == 2 * (3 - 9)
    assert int(policy.buffers["condition_rows"]) == 22
    assert policy.buffers["proprio"].tolist() == seen.proprio.tolist()


def test_act_changes_chunks_and_the_act_index_alone(policy) -> None:
    policy.buffers["generator"].copy_(torch.tensor([7, 0]))
    policy.run(policy.model.instruct(TOKENS))
    before = policy.state()
    policy.run(policy.model.act())
    first = policy.state()
    assert {name for name in before if before[name] != first[name]} == {"chunk", "generator"}
    policy.run(policy.model.act())
    second = policy.state()
    assert second["previous_chunk"] == first["chunk"] != second["chunk"]
    assert policy.buffers["generator"].tolist() == [7, 2]


def test_noise_conditioning_and_proprio_all_matter(policy) -> None:
    def chunk(key: int = 1, instruction: int = 65, proprio: float = 0.0) -> torch.Tensor:
        for spec in policy.buffers.state():
            policy.buffers[spec.name].zero_()
        policy.buffers["generator"][0] = key
        policy.run(policy.model.instruct(np.full(9, instruction)))
        policy.buffers["proprio"].fill_(proprio)
        policy.run(policy.model.act())
        return policy.buffers["chunk"].clone()

    assert torch.equal(chunk(), chunk())
    for other in (chunk(key=2), chunk(instruction=66), chunk(proprio=0.5)):
        assert (other - chunk()).abs().max() > 1e-3


def test_nothing_but_state_and_weights_is_needed_between_verbs(tiny: Path, live) -> None:
    def script(policy, dirty: bool) -> dict[str, bytes]:
        seen = [policy.observation(seed) for seed in range(2)]
        model = policy.model
        for work in (
            model.instruct(TOKENS),
            model.observe(seen[0], TOKENS),
            model.act(),
            model.observe(seen[1], TOKENS),
            model.act(),
        ):
            for kind, memory in policy.buffers.arenas if dirty else ():
                if kind in ("scratch", "input", "output"):
                    policy.buffers.arenas[kind, memory].fill_(0xFF)
            policy.run(work)
        return policy.state()

    assert script(live(tiny), dirty=True) == script(live(tiny), dirty=False)


@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_padded_rows_change_no_byte_of_the_state(poison: float, policy) -> None:
    def script(value: float) -> dict[str, bytes]:
        for spec in policy.buffers.state():
            policy.buffers[spec.name].zero_()
        for step in policy.model.instruct(np.arange(20)).steps:

            def fill(b: BufferSet, step: Step = step) -> None:
                step.fill(b)
                b["tokens"][int(b["length"]) :] = 1
                b["image_rows"][int(b["length"]) :] = 0
                b["image_embeds"].fill_(value)

            policy.plan.run(Step(step.stage, fill))
        return policy.state()

    assert any(rows < size for size, rows in split(28, policy.model.stage_sizes))
    assert script(poison) == script(0.0)


def test_starvla_rewrites_its_turn_from_an_empty_context(tmp_path: Path, live) -> None:
    folder = write_tiny_checkpoint(tmp_path, layout="starvla", condition="all", condition_rows=256)
    policy, fresh = live(folder), live(folder)
    model = policy.model
    assert model.instruct(TOKENS).steps == ()
    for seed in (0, 1):
        work = model.observe(policy.observation(seed), TOKENS)
        assert (work.rows, work.first_row) == (model.rows_to_observe(len(TOKENS)), 0)
        policy.run(work)
    fresh.run(fresh.model.observe(policy.observation(1), TOKENS))
    assert policy.state() == fresh.state()
    assert int(policy.buffers["condition_rows"]) == int(policy.buffers["position"]) == work.rows


def test_conditioning_on_all_rows_keeps_them(tmp_path: Path, live) -> None:
    newest = live(write_tiny_checkpoint(tmp_path / "newest"))
    every = live(write_tiny_checkpoint(tmp_path / "all", condition="all", condition_rows=320))
    hidden = []
    for policy in (newest, every):
        for work in (policy.model.instruct(TOKENS), policy.model.observe(policy.observation(0), TOKENS)):
            policy.run(work)
            hidden.append(policy.buffers["condition"][: int(policy.buffers["condition_rows"])].clone())
    assert torch.equal(torch.cat(hidden[:2]), hidden[3])
    assert every.buffers.specs["condition"].rows == "position"


def test_values_that_are_not_finite_are_flagged(policy) -> None:
    for name, stages, fault in (
        ("text.0.in", policy.model.instruct(TOKENS), "hidden states"),
        ("visual.0.qkv.weight", policy.model.observe(policy.observation(0), TOKENS), "image embeddings"),
        ("head.0.out.weight", policy.model.act(), "actions"),
    ):
        policy.plan.clear_faults()
        kept = policy.buffers[name][0, 0].clone()
        policy.buffers[name][0, 0] = torch.nan
        for step in stages.steps:
            policy.plan.run(step)
        assert f"{fault} are not finite" in policy.plan.fence()
        policy.buffers[name][0, 0] = kept
        for spec in policy.buffers.state():
            policy.buffers[spec.name].zero_()
    assert policy.buffers[FAULT].numel() == 1


def test_bfloat16_stays_close_to_float32(tiny: Path, live) -> None:
    exact = live(tiny)
    rounded = type(exact)(Hybrid.from_folder(tiny, dtype=torch.bfloat16))
    for policy in (exact, rounded):
        policy.run(policy.model.instruct(TOKENS))
        policy.run(policy.model.observe(policy.observation(0), TOKENS))
        policy.run(policy.model.act())
    assert rounded.buffers["kv.3.key"].dtype == torch.bfloat16
    error = (rounded.buffers["condition"] - exact.buffers["condition"]).abs().mean()
    assert error < 0.05 * exact.buffers["condition"].abs().max()


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"max_rows": 150}, "max_rows leaves room for 150 rows, but .* may take 316"),
        ({"condition_rows": 100}, "condition_rows leaves room for 100 rows, but the longest segment may take 136"),
        ({"condition": "all", "condition_rows": 190}, "leaves room for 190 rows, but .* may take 316"),
    ],
)
def test_a_context_that_cannot_hold_a_compaction_is_refused(own, message, tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path, **own)
    with pytest.raises(FlashrtError, match=message):
        Hybrid.from_folder(tmp_path)


def test_segments_are_split_by_their_length_alone(policy) -> None:
    stages = [step.stage for step in policy.model.instruct(np.zeros(60, dtype=np.int64)).steps]
    assert stages == [f"append_{size}" for size, _ in split(68, policy.model.stage_sizes)] == ["append_24"] * 3
