# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the simulated robot stands in: the world, and an episode of the task in it where one is played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from numpy.typing import NDArray

from flashrt_ros.demo.task import TICK, Disturbance, Kind, Outcome, Task, draw_scenario, saved_world
from flashrt_ros.demo.world import BUTTONS, JOINTS, World, is_saved_world
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

NO_TASK = "none"
TASKS = (NO_TASK, *(kind.value for kind in Kind))
NO_PUSH = [0.0] * (2 + len(JOINTS))


@dataclass(frozen=True, slots=True, eq=False)
class SavedScene:
    """A scene's state; for the scene that it was saved from."""

    state: bytes
    task: Task | None


def load_world(world: World, saved: bytes) -> None:
    """Take over the world of a scene's state, with a task or without, into another world."""
    world.load(saved if is_saved_world(saved) else saved_world(saved))


class Scene:
    """A world that is reset with or without a task.

    Attributes:
        world: the simulation.
        task: the episode that is played in it; None: none.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.task: Task | None = None

    def reset(self, task: str, seed: int, push: Sequence[float], dt: float) -> None:
        """Reset the world, and begin an episode unless `task` is NO_TASK.

        Args:
            task: one of TASKS.
            seed: of world and episode.
            push: what disturbs the arm: first tick, number of ticks (0: nothing does), offset of each joint (rad).
            dt: seconds a tick.

        Raises:
            FlashrtError: BAD_REQUEST for another task, a push of another form, or a tick that is not the task's.
        """
        if task not in TASKS:
            raise FlashrtError(ErrorCode.BAD_REQUEST, f"task is {task!r}: use one of {', '.join(TASKS)}")
        if len(push) != len(NO_PUSH) or not np.isfinite(push).all():
            raise FlashrtError(
                ErrorCode.BAD_REQUEST,
                f"push is {list(push)}: give the first tick, the number of ticks and {len(JOINTS)} offsets",
            )
        if task == NO_TASK:
            self.world.reset(seed)
            self.task = None
            return
        if abs(dt - TICK) > 1e-9:
            raise FlashrtError(ErrorCode.BAD_REQUEST, f"a tick takes {dt} s and the task's {TICK} s: set rate to 10")
        first, ticks, *offset = push
        pushes = [Disturbance(round(first), round(ticks), tuple(offset))] if ticks else []
        self.task = Task(self.world, draw_scenario(Kind(task), seed), seed, pushes)

    def step(self, targets: NDArray[np.float64], dt: float) -> None:
        """Move on by one tick of `dt` s with the servos pulling towards `targets` (rad)."""
        if self.task is None:
            self.world.step(targets, dt)
        else:
            self.task.step(targets)

    def save(self) -> SavedScene:
        """Return the whole state of world and episode."""
        return SavedScene(self.world.save() if self.task is None else self.task.save(), self.task)

    def load(self, saved: SavedScene) -> None:
        """Go back to a state of this scene."""
        self.task = saved.task
        if saved.task is None:
            self.world.load(saved.state)
        else:
            saved.task.load(saved.state)

    def status(self) -> DiagnosticStatus:
        """Return how the episode stands; the message is its outcome, or that there is none."""
        task = self.task
        seed = KeyValue(key="seed", value=str(self.world.seed))
        if task is None:
            return DiagnosticStatus(level=DiagnosticStatus.OK, name="episode", message=NO_TASK, values=[seed])
        values = {
            "task": task.scenario.kind.value,
            "instruction": task.scenario.instruction,
            "pressed": ", ".join(BUTTONS[button] for button in task.presses),
            "tick": str(task.tick),
        }
        failed = task.outcome in (Outcome.WRONG, Outcome.TIMEOUT)
        return DiagnosticStatus(
            level=DiagnosticStatus.WARN if failed else DiagnosticStatus.OK,
            name="episode",
            message=task.outcome.value,
            values=[seed, *(KeyValue(key=key, value=value) for key, value in values.items())],
        )
