# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Text: speculation against plain decoding, where it ends, and what it leaves to what is appended behind it."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

from flashrt_ros.models.hybrid import Hybrid


def row_by_row(policy, count: int) -> list[int]:
    """Greedy decoding by the stage that appends one given row."""
    said = []
    for _ in range(count):
        newest = policy.buffers["condition"][int(policy.buffers["condition_rows"]) - 1]
        said.append(int((policy.buffers["embed_tokens"] @ newest).argmax()))
        policy.run(policy.model.text(np.array(said[-1:])))
    return said


def live_state(policy) -> dict[str, torch.Tensor]:
    """A copy of each state buffer's live rows."""
    rows, specs = int(policy.buffers["position"]), policy.buffers.state()
    return {spec.name: policy.buffers[spec.name][: rows if spec.rows else spec.shape[0]].clone() for spec in specs}


def assert_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


def flat(steps: list[list[int]]) -> list[int]:
    return list(chain(*steps))


@pytest.mark.parametrize("drafts", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_speculation_says_what_plain_decoding_says(seed: int, drafts: int, tmp_path: Path, live, talkative) -> None:
    policy = live(talkative(tmp_path, seed, drafts=drafts))
    held = wrong = 0
    for prompt in range(3):
        tokens = np.random.default_rng(prompt).integers(0, 250, 5 + 20 * prompt)
        said, states = [], []
        for speculate in (True, False):
            policy.empty()
            policy.run(policy.model.instruct(tokens))
            steps = policy.say(30, drafts=speculate)
            said.append(flat(steps))
            states.append(live_state(policy))
            if speculate:
                held += sum(len(step) - 1 for step in steps)
                wrong += sum(len(step) < 1 + drafts for step in steps)
            else:
                assert {len(step) for step in steps} == {1}
        assert said[0] == said[1]
        assert_close(states[0], states[1])
        policy.empty()
        policy.run(policy.model.instruct(tokens))
        assert row_by_row(policy, 30) == said[0]
    assert held
    assert wrong


def test_without_an_mtp_layer_each_step_says_one_token(tmp_path: Path, live, talkative) -> None:
    policy = live(talkative(tmp_path, mtp=False))
    policy.run(policy.model.instruct(np.arange(65, 90)))
    steps = policy.say(20)
    assert {len(step) for step in steps} == {1}
    policy.empty()
    policy.run(policy.model.instruct(np.arange(65, 90)))
    assert row_by_row(policy, 20) == flat(steps)


@pytest.mark.parametrize("condition", ["newest", "all"])
def test_a_text_ends_with_the_first_stop_and_leaves_no_row_behind_it(
    condition: str, tmp_path: Path, live, talkative
) -> None:
    policy = live(talkative(tmp_path, 1, drafts=3, condition=condition, condition_rows=400))

    def state(count: int, stops: tuple[int, ...] = ()) -> tuple[list[int], dict[str, torch.Tensor]]:
        policy.empty()
        policy.run(policy.model.instruct(np.arange(65, 90)))
        said = flat(policy.say(count, stops))
        return said, live_state(policy)

    whole, _ = state(30)
    ended = 0
    for stop in set(whole):
        said, after = state(30, (250, stop))
        assert said == whole[: whole.index(stop) + 1]
        shorter, limited = state(len(said))
        assert shorter == said
        assert_close(after, limited)
        ended += len(said) > 1
    assert ended


def test_a_context_can_be_filled_to_its_last_row(tmp_path: Path, live, talkative) -> None:
    policy = live(talkative(tmp_path, 2, drafts=3, max_rows=400, condition_rows=400))
    policy.run(policy.model.text(np.random.default_rng(0).integers(0, 250, 385)))
    assert len(flat(policy.say(15))) == 15
    assert int(policy.buffers["position"]) == 400


def test_what_is_said_is_a_segment_like_any_other(tmp_path: Path, live, talkative) -> None:
    policy = live(talkative(tmp_path, 2, drafts=2))
    policy.run(policy.model.instruct(np.arange(65, 90)))
    policy.run(policy.model.observe(policy.observation(0), np.arange(3)))
    before = int(policy.buffers["position"])
    said = np.array(flat(policy.say(21)))
    assert int(policy.buffers["position"]) == before + len(said)
    assert int(policy.buffers["condition_rows"]) == len(said)
    policy.run(policy.model.instruct(np.arange(100, 120)))
    spoken = live_state(policy)
    policy.empty()
    policy.run(policy.model.instruct(np.arange(65, 90)))
    policy.run(policy.model.observe(policy.observation(0), np.arange(3)))
    policy.run(policy.model.text(said))
    policy.run(policy.model.instruct(np.arange(100, 120)))
    assert_close(spoken, live_state(policy))


def test_a_rewritten_turn_leaves_nothing_of_the_one_before(tmp_path: Path, live, talkative) -> None:
    policy = live(talkative(tmp_path, layout="starvla", max_rows=256))
    policy.run(policy.model.observe(policy.observation(0), np.arange(65, 90)))
    once = policy.state()
    policy.say(5)
    policy.run(policy.model.observe(policy.observation(1), np.arange(65, 70)))
    policy.run(policy.model.observe(policy.observation(0), np.arange(65, 90)))
    assert policy.state() == once


def test_bfloat16_speculates_to_the_same_text(tmp_path: Path, live, talkative) -> None:
    exact = live(talkative(tmp_path))
    policy = type(exact)(Hybrid.from_folder(tmp_path, dtype=torch.bfloat16))
    said = []
    for drafts in (True, False):
        policy.empty()
        policy.run(policy.model.instruct(np.arange(65, 90)))
        said.append(policy.say(30, drafts=drafts))
    assert len(said[0]) < 30
    assert flat(said[0]) == flat(said[1])
