# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A policy, command_node's controller and an arm on simulated time: messages and inferences take as long as told."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.node.inference import Inference, Inferred
from flashrt_ros.node.interfaces import msg
from flashrt_ros.node.stamps import from_nanoseconds
from flashrt_ros.policy.contract import Contract
from flashrt_ros.policy.controller import ExecutedTick
from flashrt_ros.policy.gate import Gate, GateState
from flashrt_ros.policy.overlap import Overlap
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.session import Chunk, Session
from flashrt_ros.policy.timed import TimedController
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

MS = 1_000_000
_CAMERA = 33 * MS
_WIRE = 2 * MS


@dataclass
class Sent:
    """A chunk of an epoch, and what it goes on from: `row` of the chunk before it; None: it was drawn freely."""

    epoch: int
    chunk: Chunk
    row: int | None


class World:
    """`latency` gives the ns of each inference; `loses` says which chunks, counted from 1, do not arrive.

    `commands` are those of all ticks, `ticks` what was executed, `sent` the chunks by their id.
    """

    def __init__(
        self,
        session: Session,
        contract: Contract,
        observe: Callable[[int], Observation],
        latency: Callable[[random.Random], int],
        loses: Callable[[int], bool] = lambda number: False,
    ) -> None:
        self.commands: list[NDArray[np.float64]] = []
        self.ticks: list[ExecutedTick] = []
        self.sent: dict[int, Sent] = {}
        self.session = session
        self._contract, self._period = contract, contract.action.period
        self._random, self._latency, self._loses = random.Random(1), latency, loses
        self._now, self._events, self._order = 1000 * MS, [], itertools.count()  # type: ignore[var-annotated]
        self._observe, self._seen, self._chunk_ids = observe, [0], itertools.count(1)
        self._wire_free = self._device_free = 0
        gate = Gate(epoch=0, enabled=True, dry_run=False, exact_allowed=True, now=self._now)
        self.controller = TimedController(contract, self, gate, lambda: self._now, lambda: None)
        self.loop = Inference(
            SimpleNamespace(post=lambda call: call(), resolve=lambda future: future.set_result(None)),  # type: ignore[arg-type]
            SimpleNamespace(submit=self._submit),  # type: ignore[arg-type]
            session,
            SimpleNamespace(newest=self._newest, assemble=lambda parts: observe(parts["front"][0])),  # type: ignore[arg-type]
            self._publish,
            self._fail,
            lockstep=False,
            overlap=Overlap(self._period),
        )
        self.controller.activate()
        self._tick(self._now)
        self._shoot(self._now)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self._now + round(seconds * 1e9)
        while self._events[0][0] <= end:
            self._next()
        self._now = end

    def verb(self, epoch: int, act: Callable[[], object]) -> None:
        """Close the gate, act on the session once it is free, and run on in a higher epoch."""
        self.loop.stop()
        self.controller.policy_state(epoch, running=False, step_limit=0, reason="a verb")
        closed = self._now
        while self.loop.busy:
            self._next()
        act()
        planned, head = self.session.planned(), self.session.head
        kept = planned is not None and head is not None and planned.start < len(planned.actions)
        self.loop.start(epoch, lambda: closed, Inferred(planned, head.stamp, exact=True) if kept else None)  # type: ignore[arg-type,union-attr]
        self.controller.policy_state(epoch, running=True, step_limit=0, reason="")

    # ---- what a controller puts out ----

    def command(self, stamp: int, rows: NDArray[np.float64]) -> None:
        self.commands.append(rows[0])

    safety = command

    def gate(self, state: GateState) -> None:
        pass

    def executed(self, tick: ExecutedTick) -> None:
        self.ticks.append(tick)
        message = msg.Executed(stamp=from_nanoseconds(tick.stamp), epoch=tick.epoch, infer=tick.infer)
        message.chunk_id, message.cursor, message.remaining = tick.chunk_id, tick.cursor, tick.remaining
        message.active = tick.active
        self._deliver(lambda: self.loop.on_executed(message))

    # ---- what happens ----

    def _at(self, time: int, call: Callable[[], object]) -> None:
        heapq.heappush(self._events, (time, next(self._order), call))

    def _next(self) -> None:
        self._now, _, call = heapq.heappop(self._events)
        call()

    def _deliver(self, call: Callable[[], object]) -> None:
        """In order, as one topic does."""
        self._wire_free = max(self._wire_free, self._now + self._random.randint(0, _WIRE))
        self._at(self._wire_free, call)

    def _tick(self, due: int) -> None:
        joints = self._contract.action.joints
        at = self.commands[-1] if self.commands else np.zeros(len(joints))
        self.controller.measured(joints, at, self._now)
        self.controller.tick()
        due += self._period
        self._at(due + self._random.randint(0, 2 * MS), lambda: self._tick(due))

    def _shoot(self, stamp: int) -> None:
        def come() -> None:
            self._seen.append(stamp)
            self.loop.try_now()

        self._at(stamp + self._random.randint(5 * MS, 25 * MS), come)
        self._at(stamp + _CAMERA, lambda: self._shoot(stamp + _CAMERA))

    def _newest(self, after: int) -> Any:
        if self._seen[-1] <= after:
            raise FlashrtError(ErrorCode.BAD_OBSERVATION, "no image yet")
        return {"front": (self._seen[-1], None)}

    def _submit(self, job: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        is_inference = not hasattr(job, "func")  # what was executed is told by partial()
        taken = self._latency(self._random) if is_inference else 0
        self._device_free = max(self._device_free, self._now) + taken
        self._at(self._device_free, lambda: future.set_result(job()))
        return future

    def _publish(self, inferred: Inferred) -> int:
        chunk, number, epoch = inferred.chunk, next(self._chunk_ids), self.controller.gate.epoch
        row = getattr(chunk.boundary.recipe.events()[-1], "row", None) if chunk.held is not None else None
        self.sent[number] = Sent(epoch, chunk, row)
        if not self._loses(number):
            arrived = {"epoch": epoch, "chunk_id": number, "observation_stamp": inferred.observation_stamp}
            rows = {"data": chunk.actions, "horizon": len(chunk.actions), "start": chunk.start, "dt": self._period}
            names = self._contract.action.joints
            self._deliver(lambda: self.controller.chunk(names=names, exact=inferred.exact, **arrived, **rows))
        return number

    def _fail(self, error: FlashrtError) -> None:
        raise error
