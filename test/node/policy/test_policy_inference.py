# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The loop with a device whose jobs the test runs by hand."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from flashrt_ros.node.inference import Inference, Inferred
from flashrt_ros.node.interfaces import msg
from flashrt_ros.node.observer import UnreadableError
from flashrt_ros.node.stamps import from_nanoseconds
from flashrt_ros.policy.observation_buffer import Parts
from flashrt_ros.policy.overlap import Overlap
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

EPOCH = 4


class Bench:
    """Fakes around an Inference, and what it did to them in `done`."""

    def __init__(self, lockstep: bool, overlap: Overlap | None = None) -> None:
        self.done: list[Any] = []
        self.stamps: set[int] = set()
        self.failures: list[FlashrtError] = []
        self.broken: set[int] = set()
        """Stamps of observations whose image shows that it is broken when it is decoded."""
        self.acts = 0
        self.held: int | None = None
        """What chunks hold that go on from another."""
        self.error: FlashrtError | None = None
        self._jobs: list[tuple[Callable[[], Any], Future[Any]]] = []
        self.loop = Inference(
            SimpleNamespace(post=lambda call: call(), resolve=lambda future: future.set_result(None)),  # type: ignore[arg-type]
            SimpleNamespace(submit=self._submit),  # type: ignore[arg-type]
            SimpleNamespace(observe=self._observe, act=self._act, executed=self._executed),  # type: ignore[arg-type]
            self._observer(),
            self._publish,
            self.failures.append,
            lockstep,
            overlap,
        )
        self.loop.start(EPOCH, lambda: 0, None)

    def tick(
        self, stamp: int, *, infer: bool = False, chunk: int = 0, cursor: int = 0, left: int = 0, epoch: int = EPOCH
    ) -> None:
        tick = msg.Executed(stamp=from_nanoseconds(stamp), epoch=epoch, infer=infer, chunk_id=chunk, cursor=cursor)
        tick.remaining, tick.active = left, cursor > 0
        self.loop.on_executed(tick)

    def see(self, stamp: int) -> None:
        self.stamps.add(stamp)
        self.loop.try_now()

    def compute(self) -> None:
        """Run the jobs that wait, and those that they lead to."""
        while self._jobs:
            job, future = self._jobs.pop(0)
            try:
                future.set_result(job())
            except FlashrtError as error:
                future.set_exception(error)

    @property
    def waiting(self) -> int:
        return len(self._jobs)

    def _observer(self) -> Any:
        return SimpleNamespace(
            at=self._find,
            newest=lambda after: self._find(max(self.stamps, default=0), after),
            assemble=self._assemble,
            buffer=SimpleNamespace(take_back=self._take_back),
        )

    def _assemble(self, parts: Parts) -> Any:
        ((stamp, _),) = parts.values()
        if stamp in self.broken:
            raise UnreadableError("front", stamp, "its JPEG data cannot be decoded")
        return SimpleNamespace(stamp=stamp)

    def _take_back(self, key: str, stamp: int, why: str) -> None:
        self.done.append(("took back", key, why))
        self.stamps.discard(stamp)

    def _submit(self, job: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.append((job, future))
        return future

    def _observe(self, observation: Any) -> Any:
        self.done.append(("observe", observation.stamp))
        return SimpleNamespace(note="")

    def _act(self, *goes_on: int) -> Any:
        if self.error is not None:
            raise self.error
        self.acts += 1
        self.done.append(("act", self.acts, *goes_on))
        return SimpleNamespace(act_index=self.acts, held=self.held if goes_on else None)

    def _executed(self, act_index: int, cursor: int) -> None:
        self.done.append(("executed", act_index, cursor))

    def _publish(self, inferred: Inferred) -> int:
        chunk_id = 100 + inferred.chunk.act_index
        self.done.append(("chunk", chunk_id))
        return chunk_id

    def _find(self, stamp: int, after: int) -> Parts:
        if stamp not in self.stamps:
            raise FlashrtError(ErrorCode.BAD_OBSERVATION, "the camera sleeps")
        return {"front": (stamp, None)}


@pytest.fixture
def bench() -> Bench:
    return Bench(lockstep=True)


def test_a_tick_is_answered_from_the_observation_of_its_instant(bench: Bench) -> None:
    bench.see(1)
    bench.tick(2, infer=True)
    assert (bench.waiting, bench.loop.lacking) == (0, "the camera sleeps")
    bench.see(2)
    bench.see(3)
    bench.compute()
    assert bench.done == [("observe", 2), ("act", 1), ("chunk", 101)]
    assert bench.loop.lacking == ""
    assert bench.loop.times.count == 1


def test_on_a_wall_clock_the_newest_observation_answers() -> None:
    bench = Bench(lockstep=False)
    for stamp in (7, 9):
        bench.see(stamp)
    bench.tick(8, infer=True)
    bench.compute()
    assert bench.done[0] == ("observe", 9)


def test_one_inference_at_a_time(bench: Bench) -> None:
    bench.see(1)
    for _ in range(3):
        bench.tick(1, infer=True)
    bench.compute()
    assert bench.acts == 1


def test_what_is_executed_meanwhile_is_told_behind_the_inference_in_order(bench: Bench) -> None:
    bench.see(1)
    bench.tick(1, infer=True)
    bench.compute()
    bench.tick(2, chunk=101, cursor=1)
    bench.compute()
    bench.tick(3, chunk=101, cursor=2, infer=True)
    bench.tick(4, chunk=101, cursor=3)
    bench.see(3)
    bench.tick(5, chunk=101, cursor=4)
    bench.compute()
    assert bench.done[3:] == [
        ("executed", 1, 1),
        ("executed", 1, 2),
        ("observe", 3),
        ("act", 2),
        ("chunk", 102),
        ("executed", 1, 3),
        ("executed", 1, 4),
    ]


def test_a_chunk_of_an_older_epoch_is_dropped_and_counted(bench: Bench) -> None:
    bench.see(1)
    bench.tick(1, infer=True)
    bench.loop.stop()
    bench.compute()
    assert ("chunk", 101) not in bench.done
    assert bench.loop.dropped == {"older epoch": 1}


def test_a_new_epoch_is_answered_behind_an_inference_of_the_old_one(bench: Bench) -> None:
    bench.see(1)
    bench.tick(1, infer=True)
    bench.loop.stop()
    bench.loop.start(EPOCH + 1, lambda: 0, None)
    bench.see(2)
    bench.tick(2, infer=True, epoch=EPOCH + 1)
    bench.compute()
    assert bench.done == [("observe", 1), ("act", 1), ("observe", 2), ("act", 2), ("chunk", 102)]


def test_ticks_of_another_epoch_are_not_answered(bench: Bench) -> None:
    bench.see(1)
    bench.tick(1, infer=True, epoch=EPOCH - 1)
    bench.tick(1, infer=True, epoch=EPOCH + 1)
    assert bench.waiting == 0


def test_a_reinstated_chunk_answers_the_first_request_alone(bench: Bench) -> None:
    bench.loop.start(EPOCH, lambda: 0, Inferred(SimpleNamespace(act_index=9), 1, exact=True))  # type: ignore[arg-type]
    bench.tick(1, infer=True)
    bench.tick(2, chunk=109, cursor=6)
    bench.see(3)
    bench.tick(3, infer=True)
    bench.compute()
    assert bench.done == [("chunk", 109), ("executed", 9, 6), ("observe", 3), ("act", 1), ("chunk", 101)]
    assert bench.loop.times.count == 1


def test_a_chunk_goes_on_from_the_newest_one_alone() -> None:
    """Where command_node has dropped the newest, it executes one that the session cannot go on from any more."""
    bench = Bench(lockstep=True, overlap=Overlap(period=1, fixed_delay=2))
    for stamp, chunk in ((1, 0), (2, 101), (3, 101), (4, 103)):
        bench.see(stamp)
        bench.tick(stamp, infer=True, chunk=chunk, cursor=stamp if chunk else 0)
        bench.compute()
    assert [done for done in bench.done if done[0] == "act"] == [
        ("act", 1),
        ("act", 2, 2, 1),
        ("act", 3),
        ("act", 4, 2, 3),
    ]


def test_behind_a_reinstated_chunk_all_rows_that_are_left_are_held_where_nothing_was_timed_yet() -> None:
    bench = Bench(lockstep=False, overlap=Overlap(period=10))
    bench.loop.start(EPOCH, lambda: 0, Inferred(SimpleNamespace(act_index=9), 1, exact=True))  # type: ignore[arg-type]
    bench.tick(10, infer=True)
    bench.see(30)
    bench.tick(30, infer=True, chunk=109, cursor=7, left=3)
    bench.compute()
    assert bench.done[-2] == ("act", 1, 1 + 3, 6)


def test_the_rows_that_are_held_are_those_of_the_newest_chunk_and_not_those_predicted() -> None:
    bench = Bench(lockstep=True, overlap=Overlap(period=1, fixed_delay=2))
    told = []
    for stamp, chunk, held in ((1, 0, None), (2, 101, 1), (3, 102, None)):
        bench.held = held
        bench.see(stamp)
        bench.tick(stamp, infer=True, chunk=chunk, cursor=stamp if chunk else 0)
        bench.compute()
        told.append(bench.loop.rows_held)
    assert bench.done[-2] == ("act", 3, 2, 2)
    assert told == [0, 1, 0]


@pytest.mark.parametrize(("code", "told"), [(ErrorCode.NOT_FINITE, 1), (ErrorCode.BAD_OBSERVATION, 1)])
def test_a_failed_inference_is_told_and_publishes_nothing(bench: Bench, code: ErrorCode, told: int) -> None:
    bench.error = FlashrtError(code, "no")
    bench.see(1)
    bench.tick(1, infer=True)
    bench.compute()
    assert [failure.code for failure in bench.failures] == [code] * told
    assert bench.done == [("observe", 1)]
    assert bench.loop.times.count == 0


def test_a_failure_of_an_older_epoch_is_nobodys(bench: Bench) -> None:
    bench.error = FlashrtError(ErrorCode.CANCELED, "preempted")
    bench.see(1)
    bench.tick(1, infer=True)
    bench.loop.stop()
    bench.compute()
    assert (bench.failures, bench.loop.dropped) == ([], {})


def test_an_image_that_arrived_broken_is_waited_out() -> None:
    bench = Bench(lockstep=False)
    bench.see(5)
    bench.broken.add(5)
    bench.tick(5, infer=True)
    bench.compute()
    assert bench.done == [("took back", "front", "its JPEG data cannot be decoded")]
    assert (bench.failures, bench.loop.lacking) == ([], "the camera sleeps")
    assert bench.loop.waiting_for > 0.0
    bench.see(6)
    bench.compute()
    assert bench.done[1:] == [("observe", 6), ("act", 1), ("chunk", 101)]


def test_the_image_before_a_broken_one_is_taken_at_once() -> None:
    bench = Bench(lockstep=False)
    bench.see(4)
    bench.see(5)
    bench.broken.add(5)
    bench.tick(5, infer=True)
    bench.compute()
    assert bench.done[1:] == [("observe", 4), ("act", 1), ("chunk", 101)]


def test_a_broken_image_of_an_older_epoch_is_nobodys() -> None:
    bench = Bench(lockstep=False)
    bench.see(5)
    bench.broken.add(5)
    bench.tick(5, infer=True)
    bench.loop.start(EPOCH + 1, lambda: 0, None)
    bench.compute()
    assert (bench.done, bench.waiting) == ([], 0)
