# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The device thread as the executor sees it: awaitable, watched, and fatal where it cannot be mended."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from flashrt_ros.node.executor_bridge import ExecutorBridge
from flashrt_ros.policy.durations import Durations
from flashrt_ros.policy.worker import GaveWay, Worker
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

Result = TypeVar("Result")


class DeviceThread:
    """A worker whose jobs the executor waits for without blocking.

    What a job raises is its caller's, with two exceptions that nobody here can mend: an error of the device itself,
    and an error that no code foresaw, after which nobody knows what state the device is in.
    """

    def __init__(self, bridge: ExecutorBridge, on_broken: Callable[[str], None]) -> None:
        """`on_broken` is called on the executor thread with what broke."""
        self._bridge = bridge
        self._on_broken = on_broken
        self._worker = Worker()
        self._moved: float | None = None
        self.stages = Durations()
        """Of the stages, for each of which a verb may have to wait."""

    def between_stages(self) -> None:
        """End a stage; give it to the session, which calls it before each stage."""
        if self._moved is not None:
            self.stages.add(time.monotonic() - self._moved)
        self.progress()

    def progress(self) -> None:
        """Mark progress of a job, and be canceled if it was preempted."""
        try:
            self._worker.between_stages()
        finally:
            self._moved = time.monotonic()  # an idle job may go on although it was asked to give way

    def stalled_for(self) -> float:
        """Seconds since the job in progress began or passed a stage; 0 when there is none."""
        moved = self._moved
        return 0.0 if moved is None else time.monotonic() - moved

    def cpu_seconds(self) -> float:
        """The processor time that the thread has taken, in s."""
        return self._worker.cpu_seconds()

    def submit(self, job: Callable[[], Result]) -> Future[Result]:
        """Queue a job behind those that wait."""
        return self._worker.submit(lambda: self._watched(job))

    def preempt(self, job: Callable[[], Result]) -> Future[Result]:
        """Cancel the job in progress at its next stage, drop what waits, and run this one."""
        return self._worker.preempt(lambda: self._watched(job))

    async def run(self, job: Callable[[], Result]) -> Result:
        """Queue a job and wait for it."""
        return await self._bridge.result(self.submit(job))

    async def run_quick(self, job: Callable[[], Result]) -> Result:
        """Run a job that only reads committed state, between two stages of a job in progress."""
        return await self._bridge.result(self._worker.submit_quick(lambda: self._guarded(job)))

    async def run_idle(self, job: Callable[[], Result]) -> Result:
        """Run a job while nothing else wants the device; see `Worker.submit_idle`."""
        return await self._bridge.result(self._worker.submit_idle(lambda: self._watched(job)))

    def close(self, timeout: float) -> bool:
        """Cancel everything and end the thread. False: the stage in progress did not end within `timeout` seconds."""
        try:
            self._worker.close(timeout)
        except TimeoutError:
            return False
        return True

    def _watched(self, job: Callable[[], Result]) -> Result:
        self._moved = time.monotonic()
        try:
            return self._guarded(job)
        finally:
            self._moved = None

    def _guarded(self, job: Callable[[], Result]) -> Result:
        try:
            return job()
        except GaveWay:
            raise
        except FlashrtError as error:
            if error.code is ErrorCode.DEVICE:
                self._report(str(error))
            raise
        except Exception as error:
            self._report(f"{type(error).__name__}: {error}")
            raise

    def _report(self, what: str) -> None:
        self._bridge.post(lambda: self._on_broken(what))
