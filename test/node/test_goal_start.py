# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a goal that names nothing is for, where instructions come by topic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flashrt_ros.node.goal_start import GoalStart
from flashrt_ros.node.interfaces import action


class Session:
    """Notes which episodes were begun."""

    def __init__(self, instruction: str) -> None:
        self.head = SimpleNamespace(instruction=instruction) if instruction else None
        self.begun: list[str] = []

    def begin(self, instruction: str, seed: int, retry: int) -> Any:
        self.begun.append(instruction)
        return SimpleNamespace(boundary=None, prefilled_tokens=7)

    def find(self, name: str) -> None:
        return None

    def planned(self) -> None:
        return None


def mind(head: str, text: str) -> Any:
    return SimpleNamespace(session=Session(head), observer=SimpleNamespace(text=text))


@pytest.mark.parametrize(
    ("head", "text", "goal", "begun"),
    [
        ("", "lift the cup", {}, ["lift the cup"]),
        ("put it down", "lift the cup", {}, ["lift the cup"]),
        ("lift the cup", "lift the cup", {}, []),
        ("lift the cup", "", {}, []),
        ("put it down", "lift the cup", {"instruction": "wave"}, ["wave"]),
    ],
)
def test_the_newest_text_is_what_a_goal_without_an_instruction_is_for(
    head: str, text: str, goal: dict[str, str], begun: list[str]
) -> None:
    found = mind(head, text)
    start = GoalStart(found, action.RunPolicy.Goal(**goal))
    start.apply()
    assert found.session.begun == begun
    assert start.continues == (not begun)


@pytest.mark.parametrize("goal", [{"start_from": "before_grasp"}, {"retry": 1}])
def test_a_capsule_or_a_retry_leaves_the_text_alone(goal: dict[str, Any]) -> None:
    start = GoalStart(mind("put it down", "lift the cup"), action.RunPolicy.Goal(**goal))
    assert start._instruction == ""
