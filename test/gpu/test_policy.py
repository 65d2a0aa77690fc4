# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A whole policy on the GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.models.tiny_pi0 import write_tiny_pi0
from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.session import Chunk, Mode, Session
from flashrt_ros.tools.audit import audit, random_observation

INSTRUCTION = "press the red button"
REPLAYS = 10_000
STATE_WITHIN = 2e-4
"""Largest difference between a GPU's and a CPU's float32 state, relative to the largest value."""


@pytest.fixture(scope="module", params=["append", "starvla", "pi0", "pi05"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    if request.param in ("pi0", "pi05"):
        return write_tiny_pi0(folder, request.param)
    return write_tiny_checkpoint(folder, layout=request.param, max_rows=512, max_instruction_tokens=48, mtp=True)


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def policy(request: pytest.FixtureRequest, checkpoint: Path) -> Policy:
    return load_policy(checkpoint, device="cuda", precision=request.param)


def run(policy: Policy, session: Session, seed: int = 3, key: int = 7) -> Chunk:
    rng = np.random.default_rng(seed)
    session.begin(INSTRUCTION, seed=key)
    for stamp in (1, 2):
        session.observe(random_observation(policy, rng, stamp))
        chunk = session.act()
    return chunk


def test_float32_is_as_on_a_cpu(checkpoint: Path) -> None:
    found = []
    for device in ("cpu", "cuda"):
        policy = load_policy(checkpoint, device=device, precision="float32")
        session = Session(policy, journal_bytes=1)
        chunk = run(policy, session)
        b, cursors = policy.plan.buffers, chunk.boundary.cursors
        state = {spec.name: (spec.dtype, b.live_bytes(spec.name, cursors).cpu()) for spec in b.state()}
        found.append((chunk.actions, state))
    (actions, state), (gpu_actions, gpu_state) = found
    assert np.abs(gpu_actions - actions).max() < STATE_WITHIN * np.abs(actions).max()
    for name, (dtype, data) in state.items():
        ours, exact = gpu_state[name][1].view(dtype), data.view(dtype)
        if dtype.is_floating_point:
            assert float((ours - exact).abs().max()) <= STATE_WITHIN * max(float(exact.abs().max()), 1.0), name
        else:
            assert torch.equal(ours, exact), name


@pytest.mark.parametrize("drafts", [1, 3])
def test_float32_says_what_a_cpu_says(drafts: int, talkative: Callable[..., Path], tmp_path: Path) -> None:
    folder, found = talkative(tmp_path, 3, drafts=drafts), []
    for device in ("cpu", "cuda"):
        policy = load_policy(folder, device=device, precision="float32")
        session = Session(policy)
        run(policy, session)
        session.snapshot("seen")
        texts = []
        for speculate in (True, False):
            session.restore("seen")
            texts += [session.say(40, stop=(), speculate=speculate), session.say(20, stop=("A",), speculate=speculate)]
        assert texts[0].tokens == texts[2].tokens
        assert texts[1].tokens == texts[3].tokens
        assert max(texts[0].steps) > 1
        found.append([(text.tokens, text.steps) for text in texts])
    assert found[0] == found[1]


def test_the_state_is_closed_and_captured_once(policy: Policy) -> None:
    captures = policy.plan.backend.captures
    result = audit(policy)
    assert result.closed, (result.differing, [found for found in result.findings if not found.noticed])
    assert result.captures == captures == len(policy.model.stages())


def test_a_restored_boundary_gives_another_seed_what_a_cold_run_gives(policy: Policy) -> None:
    session, cold = Session(policy), Session(policy)
    run(policy, session)
    session.snapshot("acted")
    first = session.act().actions
    session.begin("put the green cube into the bowl", seed=1)
    chunks = []
    for mode, seed in ((Mode.EXACT, None), (Mode.REOBSERVE, 8)):
        session.restore("acted", mode)
        if seed is not None:
            session.reseed(seed)
        chunks.append(session.act().actions)
    assert np.array_equal(chunks[0], first)
    run(policy, cold, key=8)
    assert np.array_equal(cold.act().actions, chunks[1])
    assert not np.array_equal(chunks[1], first)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_prompts_of_every_length_capture_nothing_and_take_no_memory(precision: str, tmp_path: Path) -> None:
    policy = load_policy(write_tiny_pi0(tmp_path, "pi05", steps=3), device="cuda", precision=precision)
    session = Session(policy, journal_bytes=1)
    session.begin(INSTRUCTION)
    images = random_observation(policy, np.random.default_rng(0), 1).images
    captures, memory, rows = policy.plan.backend.captures, taken(policy), set()
    for stamp in range(100):
        # The larger a number is, the more digits the prompt has.
        state = np.random.default_rng(stamp).uniform(-1.0, -0.9 + 0.025 * stamp, policy.model.config.state_dim)
        rows.add(session.observe(Observation(images, state, stamp)).prefilled_tokens)
        assert np.isfinite(session.act().actions).all()
    assert len(rows) > 10
    assert policy.plan.backend.captures == captures
    assert taken(policy) == memory


def taken(policy: Policy) -> tuple[int, int]:
    """Bytes of device memory that the backend and torch have taken for this process."""
    return policy.plan.backend.device.allocated, torch.cuda.memory_reserved()


def test_memory_is_flat_and_bytes_are_equal_over_many_replays(policy: Policy) -> None:
    session = Session(policy, journal_bytes=32 << 20)
    run(policy, session)
    session.snapshot("boundary")
    session.act()
    once, backend = session.digests(), policy.plan.backend
    memory, replays, captures = taken(policy), policy.plan.replays, backend.captures
    while policy.plan.replays < replays + REPLAYS:
        session.restore("boundary", Mode.EXACT)
        session.act()
        session.snapshot("after")
        session.rollback(1, Mode.EXACT)
        session.restore("after", Mode.EXACT)
        session.store.drop("after")
    assert session.digests() == once
    assert taken(policy) == memory
    assert backend.captures == captures
