# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from rclpy.task import Future

from flashrt_ros.node.interfaces import srv
from flashrt_ros.node.request_log import RequestLog
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


@pytest.fixture
def log() -> RequestLog:
    return RequestLog(SimpleNamespace(resolve=lambda future, value: future.set_result(value)), capacity=2)  # type: ignore[arg-type]


class Work:
    """Counts how often it is done."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.code = code
        self.count = 0

    async def __call__(self) -> Any:
        self.count += 1
        return srv.Snapshot.Response(error_code=int(self.code), position=self.count)


def step(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine until it waits; its result, or None."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    return None


def request(request_id: str, name: str = "a") -> Any:
    return srv.Snapshot.Request(request_id=request_id, name=name)


def test_the_same_id_is_applied_once_and_an_empty_one_each_time(log: RequestLog) -> None:
    work = Work()
    answers = [step(log.once(request("x"), work)) for _ in range(2)]
    assert (work.count, answers[0]) == (1, answers[1])
    for _ in range(2):
        step(log.once(request(""), work))
    assert work.count == 3


def test_the_same_id_for_another_request_is_refused(log: RequestLog) -> None:
    step(log.once(request("x"), Work()))
    for other in (request("x", "b"), srv.Fork.Request(request_id="x", name="a")):
        with pytest.raises(FlashrtError, match="request_id 'x'") as refused:
            step(log.once(other, Work()))
        assert refused.value.code is ErrorCode.BAD_REQUEST


def test_busy_is_not_remembered_and_errors_are(log: RequestLog) -> None:
    for code, count in ((ErrorCode.BUSY, 2), (ErrorCode.UNKNOWN_CAPSULE, 1)):
        work = Work(code)
        for _ in range(2):
            step(log.once(request(code.name), work))
        assert work.count == count


def test_a_repetition_waits_for_the_request_at_work(log: RequestLog) -> None:
    finish = Future()

    async def work() -> Any:
        await finish
        return srv.Snapshot.Response(position=5)

    first, second = log.once(request("x"), work), log.once(request("x"), Work())
    assert (step(first), step(second)) == (None, None)
    finish.set_result(None)
    assert step(first).position == 5
    assert step(second).position == 5


def test_the_oldest_answered_ones_are_forgotten(log: RequestLog) -> None:
    waiting = log.once(request("at work"), lambda: Future())
    step(waiting)
    works = {name: Work() for name in "abc"}
    for _ in range(2):
        for name, work in works.items():
            step(log.once(request(name), work))
    assert works["a"].count == 2
    assert step(log.once(request("at work"), Work())) is None
