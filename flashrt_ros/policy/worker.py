# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The one thread that owns the device."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

Result = TypeVar("Result")


class GaveWay(Exception):  # noqa: N818 - no error: the job goes on later
    """An idle job stops before its next stage, because others wait; it is called again when they are done.

    `urgent`: one of them is a verb, which waits for no more than the stage in progress.
    """

    def __init__(self, urgent: bool = False) -> None:
        super().__init__()
        self.urgent = urgent


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    number: int
    run: Callable[[], Any]
    future: Future[Any]

    def do(self) -> bool:
        """Run it. False: it gave way and is to be run again."""
        if not (self.future.running() or self.future.set_running_or_notify_cancel()):
            return True
        try:
            result = self.run()
        except GaveWay:
            return False
        except BaseException as raised:
            self.future.set_exception(raised)
        else:
            self.future.set_result(result)
        return True

    def drop(self) -> None:
        """Complete it without a result, also one that gave way."""
        if not self.future.cancel():
            self.future.set_exception(FlashrtError(ErrorCode.CANCELED, "the device thread ends"))


class Worker:
    """Runs jobs one at a time, in order; quick ones also between two stages of a job in progress, idle ones after all.

    Pass `between_stages` to the session whose verbs the jobs call.
    """

    def __init__(self, name: str = "device") -> None:
        self._condition = threading.Condition()
        self._numbers = itertools.count()
        self._jobs: deque[_Job] = deque()
        self._quick: deque[_Job] = deque()
        self._idle: deque[_Job] = deque()
        self._closing = False
        self._busy = False
        self._idling = False
        self._canceled = False
        self._urgent = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def cpu_seconds(self) -> float:
        """The processor time that the thread has taken, in s; 0 once it has ended."""
        if not self._thread.is_alive():
            return 0.0
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident or 0))

    def submit(self, run: Callable[[], Result]) -> Future[Result]:
        """Queue a job behind those that wait."""
        return self._add(self._jobs, run)

    def submit_quick(self, run: Callable[[], Result]) -> Future[Result]:
        """Queue a job that only reads committed state: behind those that wait, but within the one in progress."""
        return self._add(self._quick, run)

    def submit_idle(self, run: Callable[[], Result]) -> Future[Result]:
        """Queue a job that lets others wait for little.

        It runs while nothing else does. Where something comes, `between_stages` raises GaveWay out of it, and it is
        called again behind that: it must find by itself where it was. It may go on instead where its end is near and
        what comes is not urgent. Neither `preempt` nor a verb cancels it.
        """
        return self._add(self._idle, run)

    def preempt(self, run: Callable[[], Result]) -> Future[Result]:
        """Cancel the job in progress at its next stage, drop what waits, and run this one first."""
        with self._condition:
            for job in self._jobs:
                job.future.cancel()
            self._jobs.clear()
            self._canceled = self._busy
            self._urgent = True
        return self.submit(run)

    def between_stages(self) -> None:
        """Serve quick jobs; called by the job in progress before each of its stages.

        Raises:
            FlashrtError: CANCELED, the job was preempted.
            GaveWay: the job is an idle one, and others wait.
        """
        while (job := self._pop(self._quick)) is not None:
            job.do()
        with self._condition:
            canceled, self._canceled = self._canceled, False
            gives_way, urgent = self._idling and bool(self._jobs), self._urgent
        if canceled:
            raise FlashrtError(ErrorCode.CANCELED, "the computation was canceled by a verb; nothing of it was kept")
        if gives_way:
            raise GaveWay(urgent)

    def close(self, timeout: float = 5.0) -> None:
        """Cancel what runs and waits, and end the thread.

        Raises:
            TimeoutError: the stage in progress did not end in time.
        """
        with self._condition:
            self._closing, self._canceled = True, self._busy or self._idling
            for job in (*self._jobs, *self._quick, *self._idle):
                job.drop()
            self._condition.notify_all()
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"the stage in progress did not end within {timeout} s")

    def _add(self, queue: deque[_Job], run: Callable[[], Any]) -> Future[Any]:
        with self._condition:
            if self._closing:
                raise FlashrtError(ErrorCode.INACTIVE, "the device thread has been closed")
            job = _Job(next(self._numbers), run, Future())
            queue.append(job)
            self._condition.notify_all()
        return job.future

    def _pop(self, *queues: deque[_Job]) -> _Job | None:
        with self._condition:
            return next((queue.popleft() for queue in queues if queue), None)

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._closing or self._jobs or self._quick or self._idle)
                if self._closing:
                    return
                self._idling = not (self._quick or self._jobs)
                # In order: a quick job overtakes what is in progress, not what was to be done before it.
                waiting = [queue for queue in (self._quick, self._jobs) if queue] or [self._idle]
                job = min(waiting, key=lambda queue: queue[0].number).popleft()
                self._busy, self._canceled, self._urgent = not self._idling, False, False
            done = job.do()
            with self._condition:
                self._busy = self._idling = False
                if not done and self._closing:
                    job.drop()
                elif not done:
                    self._idle.appendleft(job)
