# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The trained policy says which buttons it has seen lit, and still knows what to do behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import flashrt_ros.demo
from flashrt_ros.demo.demonstrations import Demonstration, Instruct, Observe, demonstrate
from flashrt_ros.demo.nodes import contract_file
from flashrt_ros.demo.render import open_renderer
from flashrt_ros.demo.sequences import SAY_END, SAY_PROMPT
from flashrt_ros.demo.world import World
from flashrt_ros.policy.contract import load_contract
from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.session import Session

UNSEEN = 10**9
"""Demonstrations from here on were not trained on."""


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(Path(flashrt_ros.demo.__file__).parent / "weights")


@pytest.fixture(scope="module")
def demonstrations() -> list[Demonstration]:
    world, action = World(), load_contract(contract_file()).action
    renderer = open_renderer(world, "drawn")
    return [demonstrate(world, renderer, action, UNSEEN + number) for number in range(6)]


@dataclass
class Heard:
    """What a policy said, what it should have, how many steps it took, and how far its chunks behind that were off."""

    said: list[str] = field(default_factory=list)
    lit: list[str] = field(default_factory=list)
    tokens: int = 0
    steps: int = 0
    errors: list[float] = field(default_factory=list)


def listen(policy: Policy, shown: Demonstration, heard: Heard, speculate: bool) -> None:
    """Let a policy see a demonstration, and speak where its expert does."""
    session, spoken = Session(policy), False
    for event in shown.events:
        if isinstance(event, Instruct):
            session.instruct(event.text) if session.head else session.begin(event.text, seed=1)
        elif isinstance(event, Observe):
            views = dict(zip(policy.model.config.views, shown.images[event.index], strict=True))
            state = shown.state[event.index]
            session.observe(Observation(views, state, event.index))
            if spoken:
                heard.errors.append(np.abs(session.act().actions - state - shown.actions[event.index]).max())
        else:
            said = session.say(40, stop=(SAY_END,), prompt=SAY_PROMPT, closing="\n", speculate=speculate)
            heard.said.append(said.text)
            heard.lit.append(event.text)
            heard.tokens += len(said.tokens)
            heard.steps += len(said.steps)
            spoken = True


@pytest.mark.parametrize("speculate", [True, False])
def test_it_says_what_was_lit(policy: Policy, demonstrations: list[Demonstration], speculate: bool) -> None:
    heard = Heard()
    for shown in demonstrations:
        listen(policy, shown, heard, speculate)
    assert heard.said == heard.lit
    assert len(set(heard.lit)) > 2
    assert max(heard.errors) < 0.05  # rad
    assert (heard.steps < 0.7 * heard.tokens) == speculate
