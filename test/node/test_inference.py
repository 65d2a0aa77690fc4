# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The loop of a running policy, with a device that answers at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from flashrt_ros.node.inference import Inference
from flashrt_ros.node.interfaces import msg
from flashrt_ros.node.observer import UnreadableError
from flashrt_ros.node.stamps import from_nanoseconds
from flashrt_ros.policy.observation_buffer import ObservationBuffer, Part, Parts
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

SECOND = 1_000_000_000


class Observer:
    """One camera, whose value says whether it can be decoded."""

    def __init__(self) -> None:
        self.buffer = ObservationBuffer([Part("front", "camera", SECOND)])

    def newest(self, after: int) -> Parts:
        return self.buffer.newest(after, 5 * SECOND)

    def assemble(self, parts: Parts) -> Any:
        stamp, value = parts["front"]
        if value == "broken":
            raise UnreadableError("front", stamp, "its PNG data cannot be decoded")
        return SimpleNamespace(stamp=stamp)


class Session:
    def observe(self, observation: Any) -> Any:
        if observation.stamp == 5 * SECOND + 7:
            raise FlashrtError(ErrorCode.BAD_OBSERVATION, "state is beyond anything the statistics know")
        return SimpleNamespace(note="")

    def act(self) -> Any:
        return SimpleNamespace(act_index=1)


class Device:
    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call())
        except FlashrtError as error:
            future.set_exception(error)
        return future


def started(observer: Observer) -> tuple[Inference, list[Any], list[FlashrtError]]:
    """An inference of epoch 3, what it sent and what failed."""
    sent: list[Any] = []
    failed: list[FlashrtError] = []

    def publish(inferred: Any) -> int:
        sent.append(inferred)
        return len(sent)

    bridge = SimpleNamespace(post=lambda call: call())
    made: Any = Inference
    inference = made(bridge, Device(), Session(), observer, publish, failed.append, lockstep=False)
    inference.start(3, lambda: 0, None)
    return inference, sent, failed


def ask(inference: Inference) -> None:
    inference.on_executed(msg.Executed(epoch=3, infer=True, stamp=from_nanoseconds(5 * SECOND)))


def test_an_image_that_arrived_broken_is_waited_out() -> None:
    observer = Observer()
    inference, sent, failed = started(observer)
    observer.buffer.add("front", 5 * SECOND, "broken")
    ask(inference)
    assert (sent, failed) == ([], [])
    assert "front (camera): its PNG data cannot be decoded" in inference.lacking
    assert inference.waiting_for > 0.0
    observer.buffer.add("front", 5 * SECOND + 1, "whole")
    inference.try_now()
    assert [inferred.observation_stamp for inferred in sent] == [5 * SECOND + 1]
    assert (failed, inference.lacking, inference.waiting_for) == ([], "", 0.0)


def test_the_image_before_a_broken_one_is_taken_while_it_is_fresh() -> None:
    observer = Observer()
    inference, sent, _ = started(observer)
    observer.buffer.add("front", 5 * SECOND - 1, "whole")
    observer.buffer.add("front", 5 * SECOND, "broken")
    ask(inference)
    assert [inferred.observation_stamp for inferred in sent] == [5 * SECOND - 1]
    assert observer.buffer.parts["front"].refused == 1


def test_an_observation_that_the_policy_refuses_ends_the_run() -> None:
    observer = Observer()
    inference, sent, failed = started(observer)
    observer.buffer.add("front", 5 * SECOND + 7, "whole")
    ask(inference)
    assert (sent, [error.code for error in failed]) == ([], [ErrorCode.BAD_OBSERVATION])
