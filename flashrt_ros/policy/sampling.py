# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Chunks drawn from one boundary with other noise, beside whatever else the device is wanted for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from flashrt_ros.policy.generator import key_from_seed
from flashrt_ros.policy.loading import Policy
from flashrt_ros.policy.worker import GaveWay
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary
from flashrt_ros.runtime.live import LiveState
from flashrt_ros.runtime.plan import Step

_RESTARTS = 20
"""How often the head may move on before all chunks are drawn from one."""

_SHORT = 0.01
"""Seconds that others wait for a chunk that is nearly drawn: begun again and again, it might never be."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What the policy would plan at a boundary from the noise of a seed; float64 [horizon, action_dim], rad or m."""

    seed: int
    actions: np.ndarray
    boundary: Boundary


@dataclass(slots=True)
class Pace:
    """What the newest chunk took.

    Attributes:
        step: seconds of one of its steps, with its part of the wait for the device; None: none was drawn yet.
    """

    step: float | None = None


class Sampling:
    """One job of the device that gives way to all others before each of its stages, unless a chunk is nearly drawn.

    It writes no state: what it computes lies in scratch, and what comes out in an output. So there is nothing to bring
    back. Called again after it gave way, it goes on where it was; where another job ran stages meanwhile, the chunk in
    progress is begun again; where the head has moved on, all of them, since they are to be of one boundary.
    """

    def __init__(
        self, policy: Policy, live: LiveState, between_stages: Callable[[], None], pace: Pace, seeds: Sequence[int]
    ) -> None:
        """Draw nothing yet.

        Args:
            policy: whose chunks are drawn.
            live: the state that they are drawn from.
            between_stages: runs before each stage, and may raise GaveWay.
            pace: of the chunks before; it is kept up.
            seeds: one for each chunk.

        Raises:
            FlashrtError: BAD_REQUEST, no seeds, or no such seed.
        """
        if not seeds:
            raise FlashrtError(ErrorCode.BAD_REQUEST, "no seeds to sample with; give one for each chunk")
        self._seeds = tuple(seeds)
        self._keys = [key_from_seed(seed) for seed in seeds]
        self._policy = policy
        self._live = live
        self._between_stages = between_stages
        self._pace = pace
        self._seconds = 0.0
        self._samples: list[Sample] = []
        self._head: Boundary | None = None
        self._steps: tuple[Step, ...] = ()
        self._done = 0
        self._replays = -1
        self._restarts = 0

    def __call__(self) -> list[Sample]:
        """Draw one chunk a seed.

        Raises:
            FlashrtError: NOT_BEGUN before the first observation of an episode; NOT_FINITE; BUSY, the head moves on
                faster than all of them can be drawn.
        """
        while len(self._samples) < len(self._seeds):
            head = self._follow_head()
            if not self._done or self._live.plan.replays != self._replays:
                self._begin()
            self._run()
            self._samples.append(self._take(head))
        return self._samples

    def _follow_head(self) -> Boundary:
        """Begin anew where the head is another boundary; amendments of it change nothing that a sample is made of."""
        head = self._live.head
        if head is None or not int(self._live.plan.buffers["history_count"][0]):
            raise FlashrtError(
                ErrorCode.NOT_BEGUN, "sampling needs an observation in this episode; run the policy, or call observe"
            )
        before, self._head = self._head, head
        if before is None or before.id == head.id:
            return head
        self._restarts += 1
        if self._restarts > _RESTARTS:
            raise FlashrtError(
                ErrorCode.BUSY,
                f"the policy moved on {_RESTARTS} times before {len(self._seeds)} chunks were drawn from one boundary; "
                "ask for fewer at a time, or while it is held",
            )
        self._samples.clear()
        self._done = 0
        return head

    def _begin(self) -> None:
        plan = self._live.plan
        key = self._keys[len(self._samples)]
        self._steps = self._policy.model.sample(key, int(plan.buffers["generator"][1])).steps
        self._done, self._seconds = 0, 0.0

    def _run(self) -> None:
        plan = self._live.plan
        for step in self._steps[self._done :]:
            self._let_others()
            began = time.monotonic()
            if not self._done:
                plan.clear_faults()
            plan.run(step)
            self._done, self._replays = self._done + 1, plan.replays
            self._seconds += time.monotonic() - began

    def _let_others(self) -> None:
        try:
            self._between_stages()
        except GaveWay as asked:
            step, left = self._pace.step, len(self._steps) - self._done
            if asked.urgent or not self._done or step is None or left * step >= _SHORT:
                raise

    def _take(self, head: Boundary) -> Sample:
        began = time.monotonic()
        self._done = 0
        trouble = self._live.plan.fence()
        self._pace.step = (self._seconds + time.monotonic() - began) / len(self._steps)
        if trouble:
            raise FlashrtError(ErrorCode.NOT_FINITE, f"the policy's computation failed: {trouble}")
        b, processor = self._live.plan.buffers, self._policy.processor
        reference = processor.reference(b["measured"].numpy())
        actions = processor.actions(b["sampled"].cpu().numpy(), reference)
        return Sample(self._seeds[len(self._samples)], actions, head)
