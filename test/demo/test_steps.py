# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from py_trees.common import Status
from rclpy.task import Future

from flashrt_ros.demo.steps import Active, Do, Wait


def test_wait_runs_until_nothing_is_missing() -> None:
    answers = ["the clock", "the clock", ""]
    wait = Wait("nodes", lambda: answers.pop(0), 60.0)
    seen = []
    for _ in range(3):
        wait.tick_once()
        seen.append((wait.status, wait.feedback_message))
    assert seen == [(Status.RUNNING, "the clock"), (Status.RUNNING, "the clock"), (Status.SUCCESS, "")]


def test_wait_fails_when_its_time_is_over_and_says_what_is_missing() -> None:
    wait = Wait("nodes", lambda: "no clock", 0.0)
    while wait.status in (Status.INVALID, Status.RUNNING):
        wait.tick_once()
    assert wait.status == Status.FAILURE
    assert wait.feedback_message == "after 0 s still: no clock"


def test_do_does_it_once_a_round() -> None:
    done: list[int] = []
    step = Do("count", lambda: done.append(1))
    step.tick_once()
    assert (step.status, done) == (Status.SUCCESS, [1])


def test_a_node_that_stays_unconfigured_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    active = Active("policy", time_limit=90.0)
    told = []
    for label, seconds in (("unconfigured", 2), ("configuring", 30), ("unconfigured", 2), ("unconfigured", 2)):
        told.append(active.judge(SimpleNamespace(current_state=SimpleNamespace(label=label))))
        now += seconds
    assert told == ["", "", "", ""]
    assert active.judge(SimpleNamespace(current_state=SimpleNamespace(label="unconfigured"))) == (
        "policy could not be configured"
    )


def test_a_question_whose_answer_was_lost_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    asked: list[Future] = []
    client = SimpleNamespace(
        service_is_ready=lambda: True,
        call_async=lambda request: asked.append(Future()) or asked[-1],
        remove_pending_request=lambda future: future.cancel(),
    )
    active = Active("policy", time_limit=90.0)
    active.setup(node=SimpleNamespace(create_client=lambda kind, service: client))
    for seconds in (1.0, 1.0, 1.0):
        active.tick_once()
        now += seconds
    assert len(asked) == 1
    active.tick_once()
    assert [future.cancelled() for future in asked] == [True, False]
    asked[1].set_result(SimpleNamespace(current_state=SimpleNamespace(label="active")))
    active.tick_once()
    assert active.status == Status.SUCCESS
