# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The loop of a running policy: command_node asks, an observation is taken, a chunk is published."""

from __future__ import annotations

import concurrent.futures
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from flashrt_ros.node.device_thread import DeviceThread
from flashrt_ros.node.executor import Future
from flashrt_ros.node.executor_bridge import ExecutorBridge
from flashrt_ros.node.interfaces import msg
from flashrt_ros.node.observer import Observer, UnreadableError
from flashrt_ros.node.stamps import to_nanoseconds
from flashrt_ros.policy.durations import Durations
from flashrt_ros.policy.observation_buffer import Parts
from flashrt_ros.policy.overlap import Continued, Overlap
from flashrt_ros.policy.session import Chunk, Session
from flashrt_ros.runtime.errors import FlashrtError

_CHUNKS_IN_USE = 3
"""The one in execution, the one that will replace it, and the one before."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """A chunk and the stamp (ns) of the observation that it answers.

    `exact`: re-instated, not computed now. `note`: what happened besides, as the session says it.
    """

    chunk: Chunk
    observation_stamp: int
    exact: bool = False
    note: str = ""


class Inference:
    """One inference at a time, each asked for by a tick of command_node.

    What the robot executes while an inference is wanted or computed is told to the session behind it, in order: the
    state then depends on what was executed, and not on how long a computation took.
    """

    def __init__(
        self,
        bridge: ExecutorBridge,
        device: DeviceThread,
        session: Session,
        observer: Observer,
        publish: Callable[[Inferred], int],
        on_failure: Callable[[FlashrtError], None],
        lockstep: bool,
        overlap: Overlap | None = None,
    ) -> None:
        """Wait for `start`.

        Args:
            bridge: of the node's executor.
            device: runs the session.
            session: computes the chunks.
            observer: has the observations.
            publish: sends a chunk and returns the id that it has on the wire.
            on_failure: called when an inference of the running epoch failed.
            lockstep: a tick must be answered from the observation of its own instant.
            overlap: each chunk goes on from the one in execution, as this says; None: each is drawn freely.
        """
        self.times = Durations()
        """From the observation taken to the chunk computed."""
        self.sent = 0
        """Chunks that were published since `start`."""
        self.dropped: Counter[str] = Counter()
        """Chunks that were computed and not published, by reason."""
        self.rows_held = 0
        """Rows of the chunk before it that the newest one holds; 0: none, or it was drawn freely."""
        self._bridge = bridge
        self._device = device
        self._session = session
        self._observer = observer
        self._publish = publish
        self._on_failure = on_failure
        self._lockstep = lockstep
        self._overlap = overlap
        self._epoch: int | None = None
        self._closed_at: Callable[[], int] = lambda: 0
        self._reinstated: Inferred | None = None
        self._wanted: int | None = None
        self._wanted_since = 0.0
        self._computing: int | None = None
        """The epoch that the inference in progress is for."""
        self._idle: list[Future] = []
        self._act_indices: dict[int, int] = {}
        self._executed: tuple[int, int] = (0, 0)
        self._held_back: list[tuple[int, int]] = []
        self.lacking = ""

    @property
    def waiting_for(self) -> float:
        """Seconds since an inference was asked for that no observation is there for; 0: none waits."""
        return 0.0 if self._wanted is None else time.monotonic() - self._wanted_since

    @property
    def busy(self) -> bool:
        """Whether one is being computed."""
        return self._computing is not None

    def start(self, epoch: int, closed_at: Callable[[], int], reinstated: Inferred | None) -> None:
        """Answer the ticks of an epoch.

        Args:
            epoch: of the ticks.
            closed_at: when the gate closed, ns.
            reinstated: answers the first request, in the place of an inference.
        """
        self.stop()
        self.sent = 0
        if self._overlap is not None:
            self._overlap.restart()
        self._epoch, self._closed_at, self._reinstated = epoch, closed_at, reinstated

    def stop(self) -> None:
        """Answer no more; a computation in flight is not awaited, and its chunk is dropped."""
        self._epoch = self._wanted = self._reinstated = None
        self._held_back.clear()
        self._act_indices.clear()
        self.lacking = ""

    async def idle(self) -> None:
        """Wait until nothing is being computed."""
        if self.busy:
            future = Future()
            self._idle.append(future)
            await future

    def on_executed(self, tick: msg.Executed) -> None:
        """Take a tick of the running epoch."""
        if tick.epoch != self._epoch:
            return
        if self._overlap is not None:
            stamp = to_nanoseconds(tick.stamp)
            self._overlap.tick(stamp, tick.chunk_id, tick.cursor, tick.remaining, active=tick.active)
        self._note(tick.chunk_id, tick.cursor)
        # One that is computed for an older epoch is no answer: its chunk will be dropped.
        if tick.infer and self._computing != self._epoch:
            if self._wanted is None:
                self._wanted_since = time.monotonic()
            self._wanted = to_nanoseconds(tick.stamp)
            self.try_now()

    def try_now(self) -> None:
        """Begin the inference that was asked for, if there is one and its observation is there."""
        if self._wanted is None or self._epoch is None or self.busy:
            return
        if self._reinstated is not None:
            reinstated, self._reinstated = self._reinstated, None
            self._wanted = None
            self._send(reinstated)
            self._tell_session()
            return
        try:
            after = self._closed_at()
            parts = self._observer.at(self._wanted, after) if self._lockstep else self._observer.newest(after)
        except FlashrtError as error:
            self.lacking = str(error)
            return
        wanted, self._wanted, self.lacking = self._wanted, None, ""
        self._begin(self._epoch, wanted, parts)

    def _begin(self, epoch: int, wanted: int, parts: Parts) -> None:
        self._computing = epoch
        began = time.monotonic()
        continued = self._continued(parts)
        future = self._device.submit(lambda: self._compute(parts, continued))
        future.add_done_callback(lambda done: self._bridge.post(lambda: self._finish(epoch, wanted, began, done)))

    def _continued(self, parts: Parts) -> Continued | None:
        """What the next chunk goes on from; None where it is drawn freely.

        The session goes on from its newest chunk alone: where command_node has dropped that, there is none.
        """
        if self._overlap is None:
            return None
        duration = self.times.last if self.times.count else None
        continued = self._overlap.begin(min(stamp for stamp, _ in parts.values()), duration)
        newest = next(reversed(self._act_indices), 0)
        return continued if continued is not None and continued.chunk_id == newest else None

    def _compute(self, parts: Parts, continued: Continued | None) -> Inferred:
        """Run on the device thread."""
        observation = self._observer.assemble(parts)
        note = self._session.observe(observation).note
        chunk = self._session.act() if continued is None else self._session.act(continued.delay, continued.row)
        return Inferred(chunk, observation.stamp, note=note)

    def _finish(self, epoch: int, wanted: int, began: float, done: concurrent.futures.Future[Inferred]) -> None:
        self._computing = None
        error = None if done.cancelled() else done.exception()
        finished = error is None and not done.cancelled()
        if epoch == self._epoch and finished:
            self.times.add(time.monotonic() - began)
            self.rows_held = done.result().chunk.held or 0
            self._send(done.result())
        elif epoch == self._epoch and isinstance(error, UnreadableError):
            # The next image may be whole: one that arrived broken is a reason to wait, not to end the run.
            self._observer.buffer.take_back(error.key, error.stamp, error.why)
            self._wanted = wanted
        elif epoch == self._epoch and isinstance(error, FlashrtError):
            self._on_failure(error)
        elif finished:
            self.dropped["older epoch"] += 1
        self._tell_session()
        idle, self._idle = self._idle, []
        for future in idle:
            self._bridge.resolve(future)
        self.try_now()

    def _send(self, inferred: Inferred) -> None:
        self.sent += 1
        self._act_indices[self._publish(inferred)] = inferred.chunk.act_index
        while len(self._act_indices) > _CHUNKS_IN_USE:
            del self._act_indices[next(iter(self._act_indices))]

    def _note(self, chunk_id: int, cursor: int) -> None:
        """Note how far a chunk has been executed."""
        act_index = self._act_indices.get(chunk_id)
        if act_index is None or self._executed == (act_index, cursor):
            return
        self._executed = (act_index, cursor)
        self._held_back.append(self._executed)
        if not self.busy and self._wanted is None:
            self._tell_session()

    def _tell_session(self) -> None:
        for act_index, cursor in self._held_back:
            self._device.submit(partial(self._session.executed, act_index, cursor))
        self._held_back.clear()
