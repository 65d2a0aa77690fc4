# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from flashrt_ros.policy.contract import Contract, load_contract
from flashrt_ros.policy.contract_fit import check_fit
from flashrt_ros.policy.loading import Policy
from flashrt_ros.runtime.errors import ErrorCode


def with_strategy(root: Path, strategy: str) -> Contract:
    contract = load_contract(root / "config" / "demo_contract.yaml")
    return replace(contract, action=replace(contract.action, strategy=strategy))


def test_a_contract_for_the_checkpoint_is_taken(root: Path, loaded: Policy) -> None:
    for strategy in ("sync", "async"):
        check_fit(with_strategy(root, strategy), loaded.model.config)


def test_real_time_chunking_is_refused_and_named(root: Path, loaded: Policy, refuses: Callable[..., Any]) -> None:
    with refuses(ErrorCode.NOT_SUPPORTED, "action.strategy is rtc", "GR00T head", "Use async"):
        check_fit(with_strategy(root, "rtc"), loaded.model.config)
