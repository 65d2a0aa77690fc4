# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a planner on the task in this process, with the timing that the nodes have in lockstep."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.demo.render import VIEWS, Renderer
from flashrt_ros.demo.task import Outcome, Task
from flashrt_ros.policy.action_queue import ActionQueue, Chunk
from flashrt_ros.policy.contract_action import Action
from flashrt_ros.policy.limits import Saturation
from flashrt_ros.policy.processing import Observation

Planner = Callable[[Observation], NDArray[np.float64]]
"""From an observation to joint targets [horizon, joints] in rad, row 0 for the tick of the observation."""


class ClosedLoop:
    """Asks for a chunk when few rows are left and applies it some ticks after its observation, as command_node does."""

    def __init__(
        self,
        task: Task,
        renderer: Renderer,
        planner: Planner,
        action: Action,
        apply_after: int,
        disturb: Callable[[NDArray[np.float64]], NDArray[np.float64]] = lambda targets: targets,
    ) -> None:
        """Start with an empty queue: the first tick observes.

        Args:
            task: is stepped.
            renderer: of the task's world.
            planner: makes the chunks.
            action: the contract's; threshold, limits and period count.
            apply_after: ticks from an observation until its chunk runs.
            disturb: changes the targets before they are saturated.
        """
        self.task = task
        self._renderer = renderer
        self._planner = planner
        self._action = action
        self._apply_after = apply_after
        self._disturb = disturb
        self._queue = ActionQueue(action.period)
        self._saturation = Saturation(action.joints, action.limits)
        self._commanded = self._saturation.within_position(task.world.positions)
        self._chunks = 0

    def tick(self) -> Outcome:
        """Do one control tick."""
        queue, now = self._queue, self.task.tick * self._action.period
        if queue.remaining == 0 and queue.staged is None:
            self._plan(now)
        staged = queue.staged
        if staged is not None and (
            queue.remaining == 0 or queue.rows_run_since(staged.observation_stamp) >= self._apply_after
        ):
            queue.replace()
        row = queue.take(now)
        if row is None:
            raise ValueError("the planner's chunk has no row for this tick")
        if queue.staged is None and queue.remaining <= self._action.threshold:
            self._plan(now)
        self._commanded = self._saturation.apply(self._disturb(row), self._commanded)
        return self.task.step(self._commanded)

    def run(self, limit: int = 1_000_000) -> Outcome:
        """Tick until the episode is decided, or for `limit` ticks."""
        for _ in range(limit):
            if self.tick() is not Outcome.RUNNING:
                break
        return self.task.outcome

    def observe(self) -> Observation:
        """Look at the world as it is."""
        images = {view: self._renderer.render(view) for view in VIEWS}
        return Observation(images, self.task.world.positions, self.task.tick * self._action.period)

    def _plan(self, now: int) -> None:
        self._chunks += 1
        rows = self._planner(self.observe())
        self._queue.stage(Chunk(1, self._chunks, now, rows, 0, exact=False))
