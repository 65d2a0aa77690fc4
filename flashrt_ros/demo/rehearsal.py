# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Episodes in this process, with memory and world under control: what if something else had been remembered?"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.demo.closed_loop import ClosedLoop
from flashrt_ros.demo.nodes import contract_file
from flashrt_ros.demo.render import VIEWS, open_renderer
from flashrt_ros.demo.task import Disturbance, Kind, Outcome, Scenario, Task, draw_scenario
from flashrt_ros.demo.world import World
from flashrt_ros.policy.contract import load_contract
from flashrt_ros.policy.loading import load_policy
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.session import Session
from flashrt_ros.policy.store import CapsuleStore
from flashrt_ros.runtime.capsule import Capsule

LOOK_TICKS = 16
"""A single light is dark from this tick on, whatever the seed, and the policy has seen it."""


@dataclass(slots=True)
class Take:
    """What happened from some tick on; by tick.

    Attributes:
        states: of the task, for Task.load; only where they were asked for.
        chunks: joint targets (rad) [horizon, joints], by the tick of their observation.
        commands: joint targets (rad) [joints].
        outcome: at the end.
        tick: of the end.
        presses: buttons (index in BUTTONS) in order.
    """

    states: dict[int, bytes] = field(default_factory=dict)
    chunks: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    commands: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    outcome: Outcome = Outcome.RUNNING
    tick: int = 0
    presses: tuple[int, ...] = ()

    def same_actions(self, other: Take) -> bool:
        """Whether both commanded the same, bit for bit."""
        return self.commands.keys() == other.commands.keys() and all(
            self.commands[tick].tobytes() == other.commands[tick].tobytes() for tick in self.commands
        )


class Rehearsal:
    """One policy and one world, with the timing of lockstep.

    Attributes:
        session: the policy's memory.
        task: the episode.
    """

    def __init__(self, checkpoint: Path, renderer: str = "auto", threads: int = 1) -> None:
        """`threads` of the computation; the results of another number differ somewhat."""
        contract = load_contract(contract_file())
        if contract.lockstep is None:
            raise ValueError(f"{contract.file} has no lockstep")
        self._action, self._apply_after = contract.action, contract.lockstep.apply_after
        self._world = World()
        self._renderer = open_renderer(self._world, renderer)
        self._names = (f"memory{number}" for number in itertools.count())
        self.session = Session(load_policy(checkpoint, threads=threads), CapsuleStore(256 << 20), journal_bytes=0)
        self.task = Task(self._world, draw_scenario(Kind.NAMED, 0), 0)

    def stage(self, scenario: Scenario, seed: int, pushes: Sequence[Disturbance] = ()) -> None:
        """Put the world to the beginning of an episode; memory stays as it is."""
        self.task = Task(self._world, scenario, seed, pushes)

    def begin(self, seed: int) -> None:
        """Begin the task's instruction anew: a memory that has seen nothing."""
        self.session.begin(self.task.scenario.instruction, seed=seed)

    def observe(self, state: bytes) -> NDArray[np.float64]:
        """See the world as it was in a saved state, and plan: joint targets (rad) [horizon, joints]."""
        self.task.load(state)
        images = {view: self._renderer.render(view) for view in VIEWS}
        return self._plan(Observation(images, self._world.positions, self.task.tick * self._action.period))

    def play(self, limit: int = 1_000_000, *, keep_states: bool = False) -> Take:
        """Let the policy drive, with an empty queue at first, until the episode is decided or for `limit` ticks."""
        task, take = self.task, Take()

        def plan(observation: Observation) -> NDArray[np.float64]:
            take.chunks[task.tick] = self._plan(observation)
            return take.chunks[task.tick]

        def note(targets: NDArray[np.float64]) -> NDArray[np.float64]:
            take.commands[task.tick] = targets
            return targets

        loop = ClosedLoop(task, self._renderer, plan, self._action, self._apply_after, note)
        for _ in range(limit):
            if keep_states:
                take.states[task.tick] = task.save()
            if loop.tick() is not Outcome.RUNNING:
                break
        take.outcome, take.tick, take.presses = task.outcome, task.tick, task.presses
        if keep_states:
            take.states[task.tick] = task.save()
        return take

    def memory(self) -> Capsule:
        """Return what is remembered now."""
        name = next(self._names)
        capsule = self.session.snapshot(name).capsule
        if capsule is None:
            raise ValueError("a snapshot without a capsule")
        self.session.store.drop(name)
        return capsule

    def recall(self, memory: Capsule, retry: int = 0) -> None:
        """Remember that again; `retry` is folded into the generator's key."""
        name = next(self._names)
        self.session.store.add(replace(memory, name=name))
        self.session.restore(name)
        self.session.store.drop(name)
        if retry:
            self.session.retry(retry)

    def _plan(self, observation: Observation) -> NDArray[np.float64]:
        self.session.observe(observation)
        return self.session.act().actions


def mix(rows_of: Capsule, rest_of: Capsule) -> Capsule:
    """Return a memory with the KV rows of one episode and all other state of another, which is as long.

    No verb makes such a thing: it shows what restoring a KV cache alone would do.

    Raises:
        ValueError: the episodes are not equally long.
    """
    if rows_of.boundary.cursors != rest_of.boundary.cursors:
        raise ValueError(f"rows up to {dict(rows_of.boundary.cursors)}, the rest at {dict(rest_of.boundary.cursors)}")
    return replace(rows_of, small=rest_of.small)


def other_seed(scenario: Scenario, seed: int) -> int:
    """Return the next seed whose first light is another button."""
    others = ((other, draw_scenario(scenario.kind, other).lights[0]) for other in itertools.count(seed + 1))
    return next(other for other, light in others if light != scenario.lights[0])
