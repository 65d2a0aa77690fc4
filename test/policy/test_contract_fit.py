# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashrt_ros.policy.contract import Contract, load_contract
from flashrt_ros.policy.contract_fit import check_fit
from flashrt_ros.policy.contract_observation import StateSource
from flashrt_ros.policy.loading import Policy
from flashrt_ros.runtime.errors import ErrorCode


def with_strategy(root: Path, strategy: str) -> Contract:
    contract = load_contract(root / "config" / "demo_contract.yaml")
    return replace(contract, action=replace(contract.action, strategy=strategy))


def test_a_contract_for_the_checkpoint_is_taken(root: Path, loaded: Policy) -> None:
    for strategy in ("sync", "async"):
        check_fit(with_strategy(root, strategy), loaded.model.config)


def test_real_time_chunking_needs_a_policy_that_can(root: Path, loaded: Policy, refuses: Callable[..., Any]) -> None:
    with refuses(ErrorCode.NOT_SUPPORTED, "action.strategy is rtc", "GR00T head", "Use async"):
        check_fit(with_strategy(root, "rtc"), loaded.model.config)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda c: replace(c, observation=replace(c.observation, images=c.observation.images[::-1])), ""),
        (
            lambda c: replace(c, observation=replace(c.observation, images=c.observation.images[1:])),
            "observation.images is wrist; the checkpoint tiny has front, wrist: it lacks front",
        ),
        (
            lambda c: replace(c, action=replace(c.action, mode="absolute")),
            "action.mode is absolute; the checkpoint tiny has delta: it lacks delta and has absolute besides",
        ),
        (
            lambda c: replace(c, action=replace(c.action, outputs=(0, 3))),
            "outputs 0 to 2 of the 6 that the checkpoint has are 'shoulder_pan', 'shoulder_lift', 'elbow'",
        ),
        (
            lambda c: replace(c, observation=replace(c.observation, state=(_shorter(c.observation.state[0]),))),
            "it lacks gripper",
        ),
    ],
    ids=["views in another order", "a view too few", "another mode", "a slice too short", "a joint too few"],
)
def test_what_does_not_fit_is_named(
    root: Path, loaded: Policy, refuses: Callable[..., Any], change: Callable[[Contract], Contract], named: str
) -> None:
    contract = change(load_contract(root / "config" / "demo_contract.yaml"))
    if not named:
        check_fit(contract, loaded.model.config)
        return
    with refuses(ErrorCode.BAD_CONTRACT, "demo_contract.yaml", named):
        check_fit(contract, loaded.model.config)


def _shorter(source: StateSource) -> StateSource:
    return replace(source, joints=source.joints[:-1], names=source.names[:-1], conversions=source.conversions[:-1])
