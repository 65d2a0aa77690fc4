# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

from flashrt_ros.policy.worker import GaveWay, Worker
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


class Staged:
    """A job of two stages; the second waits until it is let go."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.in_first = threading.Event()
        self.go = threading.Event()

    def __call__(self) -> str:
        self.worker.between_stages()
        self.in_first.set()
        assert self.go.wait(5)
        self.worker.between_stages()
        return "done"


def test_jobs_run_in_order_on_one_thread(worker: Worker) -> None:
    futures = [worker.submit(lambda number=number: (number, threading.get_ident())) for number in range(5)]
    results = [future.result(5) for future in futures]
    assert [number for number, _ in results] == [0, 1, 2, 3, 4]
    assert len({thread for _, thread in results}) == 1


def test_a_quick_job_runs_between_two_stages(worker: Worker) -> None:
    job = Staged(worker)
    done = worker.submit(job)
    assert job.in_first.wait(5)
    quick = worker.submit_quick(lambda: done.done())
    job.go.set()
    assert quick.result(5) is False
    assert done.result(5) == "done"


def test_a_quick_job_overtakes_none_that_waits(worker: Worker) -> None:
    begun, released, order = threading.Event(), threading.Event(), []

    def first() -> None:
        begun.set()
        assert released.wait(5.0)

    worker.submit(first)
    assert begun.wait(5.0)
    worker.submit(lambda: order.append("committed"))
    quick = worker.submit_quick(lambda: order.append("saved"))
    released.set()
    quick.result(5.0)
    assert order == ["committed", "saved"]


def test_a_preempted_job_ends_at_its_next_stage(worker: Worker) -> None:
    job = Staged(worker)
    done, waiting = worker.submit(job), worker.submit(lambda: "never")
    assert job.in_first.wait(5)
    verb = worker.preempt(lambda: "restored")
    job.go.set()
    assert verb.result(5) == "restored"
    with pytest.raises(FlashrtError) as canceled:
        done.result(5)
    assert canceled.value.code is ErrorCode.CANCELED
    with pytest.raises(CancelledError):
        waiting.result(5)


def test_preempting_an_idle_worker_cancels_nothing_later(worker: Worker) -> None:
    assert worker.preempt(lambda: 1).result(5) == 1
    assert worker.submit(lambda: worker.between_stages()).result(5) is None


def test_an_exception_reaches_the_submitter_and_the_thread_lives(worker: Worker) -> None:
    def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        worker.submit(fail).result(5)
    assert worker.submit(lambda: 2).result(5) == 2


def test_a_closed_worker_takes_nothing() -> None:
    worker = Worker()
    worker.close()
    with pytest.raises(FlashrtError) as refused:
        worker.submit(lambda: None)
    assert refused.value.code is ErrorCode.INACTIVE


def test_its_processor_time_is_what_its_jobs_compute(worker: Worker) -> None:
    def compute() -> float:
        began = time.thread_time()
        while time.thread_time() - began < 0.05:
            pass
        return time.thread_time()

    before = worker.cpu_seconds()
    ended = worker.submit(compute).result()
    computed = worker.cpu_seconds()
    worker.submit(lambda: time.sleep(0.1)).result()
    assert before + 0.05 <= ended <= computed < ended + 0.02
    assert worker.cpu_seconds() - computed < 0.02
    worker.close()
    assert worker.cpu_seconds() == 0.0


def test_an_idle_job_gives_way_and_is_called_again(worker: Worker) -> None:
    in_first, go, calls = threading.Event(), threading.Event(), []

    def idle() -> str:
        calls.append("idle")
        in_first.set()
        assert go.wait(5)
        worker.between_stages()
        return "done"

    future = worker.submit_idle(idle)
    assert in_first.wait(5)
    jobs = [worker.submit(lambda number=number: calls.append(number)) for number in range(2)]
    verb = worker.preempt(lambda: calls.append("verb"))
    go.set()
    assert future.result(5) == "done"
    assert verb.done()
    assert jobs[0].cancelled()
    assert calls == ["idle", "verb", "idle"]


@pytest.mark.parametrize(("ask", "urgent"), [(Worker.submit, False), (Worker.preempt, True)], ids=["a job", "a verb"])
def test_an_idle_job_is_told_whether_it_is_urgent(worker: Worker, ask: Callable[..., Any], urgent: bool) -> None:
    in_first, go, told = threading.Event(), threading.Event(), []

    def idle() -> None:
        in_first.set()
        assert go.wait(5)
        try:
            worker.between_stages()
        except GaveWay as asked:
            told.append(asked.urgent)
            raise

    future = worker.submit_idle(idle)
    assert in_first.wait(5)
    ask(worker, lambda: None)
    go.set()
    future.result(5)
    assert told == [urgent]


def test_a_quick_job_does_not_make_an_idle_one_give_way(worker: Worker) -> None:
    in_first, go, calls = threading.Event(), threading.Event(), []

    def idle() -> None:
        calls.append("idle")
        in_first.set()
        assert go.wait(5)
        worker.between_stages()

    future = worker.submit_idle(idle)
    assert in_first.wait(5)
    quick = worker.submit_quick(lambda: calls.append("quick"))
    go.set()
    future.result(5)
    assert quick.done()
    assert calls == ["idle", "quick"]


def test_closing_ends_an_idle_job_that_gave_way() -> None:
    worker = Worker()
    blocked, go = threading.Event(), threading.Event()

    def idle() -> None:
        raise GaveWay

    def block() -> None:
        blocked.set()
        go.wait(5)

    first = worker.submit(block)
    assert blocked.wait(5)
    future = worker.submit_idle(idle)
    go.set()
    first.result(5)
    worker.close()
    with pytest.raises((FlashrtError, CancelledError)):
        future.result(5)
