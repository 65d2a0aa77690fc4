# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flashrt_ros.policy.action_map import ActionMap
from flashrt_ros.policy.contract import load_contract
from flashrt_ros.policy.contract_action import Action
from flashrt_ros.policy.contract_keys import Conversion
from flashrt_ros.policy.conversions import converted, unconverted
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

OUTPUTS = tuple(f"output_{index}" for index in range(32))


@pytest.fixture
def action() -> Action:
    return load_contract(Path(__file__).resolve().parents[2] / "config" / "demo_contract.yaml").action


def test_all_outputs_are_the_joints_and_keep_their_bytes(action: Action) -> None:
    names = tuple(reversed(action.joints))
    actions = np.random.default_rng(0).normal(size=(4, 6))
    actions[0, 0] = -0.0
    mapped = ActionMap(action, names)
    assert mapped.joints == names
    assert mapped.rows(actions).tobytes() == actions.tobytes()


def test_of_32_outputs_the_declared_slice_alone_moves_the_robot(action: Action) -> None:
    names = (*OUTPUTS[:4], *action.joints, *OUTPUTS[10:])
    actions = np.arange(3.0 * 32).reshape(3, 32)
    mapped = ActionMap(replace(action, outputs=(4, 10)), names)
    assert mapped.joints == action.joints
    assert (mapped.rows(actions) == actions[:, 4:10]).all()
    assert mapped.rows(actions).flags.c_contiguous


@pytest.mark.parametrize("outputs", [None, (0, 6), (28, 34)])
def test_a_slice_of_other_outputs_is_refused(action: Action, outputs: tuple[int, int] | None) -> None:
    names = (*OUTPUTS[:4], *action.joints, *OUTPUTS[10:])
    with pytest.raises(FlashrtError, match=r"action\.joints is 'shoulder_pan'") as refused:
        ActionMap(replace(action, outputs=outputs), names)
    assert refused.value.code is ErrorCode.BAD_CONTRACT


def test_actions_go_back_through_the_conversions_of_the_state(action: Action) -> None:
    conversions = (Conversion(-57.3, 10.0), *action.conversions[1:])
    names = tuple(reversed(action.joints))
    mapped = ActionMap(replace(action, conversions=conversions), names)
    radians = np.linspace(-1.0, 1.0, 6)[None]
    degrees = converted(radians, tuple(reversed(conversions)))
    assert degrees[0, 5] == -57.3 + 10.0
    assert np.allclose(mapped.rows(degrees), radians, rtol=1e-15)


def test_converting_and_back_is_the_same() -> None:
    conversions = [Conversion(), Conversion(0.001), Conversion(-1.0), Conversion(52.1, 9.1)]
    numbers = np.random.default_rng(0).normal(size=(5, 4))
    assert np.allclose(unconverted(converted(numbers, conversions), conversions), numbers, rtol=1e-12)
