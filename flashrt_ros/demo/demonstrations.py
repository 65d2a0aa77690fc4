# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Demonstrations: episodes of the expert, disturbed in many ways, as the segments that a session would append.

Observations are taken with the timing of the running policy, and each is labelled with the plan that the expert makes
there. What the arm runs is that plan with noise and pushes, so the labels tell how to recover from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.demo.closed_loop import ClosedLoop
from flashrt_ros.demo.expert import HORIZON, Expert
from flashrt_ros.demo.render import VIEWS, Renderer
from flashrt_ros.demo.task import (
    INSTRUCTIONS,
    LIGHTS_OVER,
    Disturbance,
    Kind,
    Outcome,
    Task,
    draw_scenario,
    name_button,
)
from flashrt_ros.demo.world import BUTTONS, JOINTS, World
from flashrt_ros.policy.contract_action import Action
from flashrt_ros.policy.processing import Observation

FIRST_SEED = 1 << 40
"""Demonstrations use seeds from here on, evaluations those below."""
MAX_OBSERVATIONS = 14

_Array = NDArray[np.float64]

_KINDS = (Kind.NAMED, Kind.LIT, Kind.ORDER)
_KIND_SHARES = (0.28, 0.38, 0.34)
_CADENCES = (8, 8, 8, 8, 8, 6, 7, 9, 10)  # ticks between observations
_LATENCIES = (2, 2, 2, 1, 3)  # ticks from an observation until its chunk runs
_BLIND, _SWITCH, _CUT, _NOISY, _PUSHED, _SPOKEN = 0.07, 0.10, 0.3, 0.5, 0.5, 0.3  # shares of the episodes
_NOISE = 0.02  # rad
_PUSH = 0.3  # rad
_TAIL = 10  # ticks after success
_TYPICAL_START = {Kind.NAMED: 0, Kind.LIT: 16, Kind.ORDER: 32}  # ticks


@dataclass(frozen=True, slots=True)
class Instruct:
    """An instruction is appended."""

    text: str


@dataclass(frozen=True, slots=True)
class Observe:
    """Observation number `index` of the demonstration is appended."""

    index: int


@dataclass(frozen=True, slots=True)
class Say:
    """The policy says a line."""

    text: str


Event = Instruct | Observe | Say


@dataclass(frozen=True, eq=False, slots=True)
class Demonstration:
    """What was seen and what the expert planned.

    Attributes:
        images: uint8 [observations, views, height, width, 3].
        state: measured joints, float64 [observations, joints], rad.
        actions: targets relative to the measured joints, float64 [observations, horizon, joints], rad.
        events: what a session appends, in order; not every observation need be among them.
    """

    images: NDArray[np.uint8]
    state: _Array
    actions: _Array
    events: tuple[Event, ...]


def demonstrate(world: World, renderer: Renderer, action: Action, number: int) -> Demonstration:
    """Make demonstration `number`, a function of it alone: failed ones are drawn again.

    Args:
        world: is reset.
        renderer: of that world.
        action: the contract's.
        number: 0 or more.
    """
    random = np.random.default_rng((number, 0xDE30))
    while True:
        take = _Take(world, renderer, action, random)
        if take.run():
            return take.result()


class _Take:
    """One attempt at an episode."""

    def __init__(self, world: World, renderer: Renderer, action: Action, random: np.random.Generator) -> None:
        self._random = random
        kind = _KINDS[random.choice(len(_KINDS), p=_KIND_SHARES)]
        seed = FIRST_SEED + int(random.integers(1 << 40))
        scenario = draw_scenario(kind, seed)
        self._blind = kind is not Kind.NAMED and random.random() < _BLIND
        guess = tuple(int(button) for button in random.permutation(len(BUTTONS))[: len(scenario.goals)])
        self._switch_at = int(random.integers(1, 5)) if random.random() < _SWITCH else None
        self._task = Task(world, scenario, seed, self._draw_pushes(kind))
        self._expert = Expert(self._task, guess)
        if self._blind:
            self._task.instruct(kind, scenario.instruction, guess)
        cadence = int(random.choice(_CADENCES))
        paced = replace(action, threshold=_rows(cadence))
        latency = int(random.choice(_LATENCIES))
        self._loop = ClosedLoop(self._task, renderer, self._plan, paced, latency, self._noise())
        self._seen: list[Observation] = []
        self._plans: list[_Array] = []
        self._lit: list[tuple[bool, ...]] = []
        self._presses: list[int] = []
        self._instructions = {0: scenario.instruction}

    def run(self) -> bool:
        """Play; False: it failed, and is of no use."""
        task = self._task
        if self._blind:
            for _ in range(LIGHTS_OVER + int(self._random.integers(10))):
                task.step(task.world.targets)
        tail = _TAIL
        while len(self._seen) < MAX_OBSERVATIONS and tail:
            outcome = self._loop.tick()
            if outcome in (Outcome.WRONG, Outcome.TIMEOUT):
                return False
            if outcome is Outcome.SUCCESS and (self._switch_at is None or len(self._seen) > self._switch_at):
                tail -= 1
        return True

    def result(self) -> Demonstration:
        """What a finished attempt has shown."""
        return Demonstration(
            images=np.stack([np.stack([seen.images[view] for view in VIEWS]) for seen in self._seen]),
            state=np.stack([seen.state for seen in self._seen]),
            actions=np.stack(self._plans),
            events=tuple(self._events()),
        )

    def _plan(self, observation: Observation) -> _Array:
        if len(self._seen) == self._switch_at:
            self._switch()
        self._expert.look()
        plan = self._expert.plan(observation.state)
        self._seen.append(observation)
        self._plans.append(plan - observation.state)
        self._lit.append(self._task.lit())
        self._presses.append(len(self._task.presses))
        return plan

    def _switch(self) -> None:
        """Give another instruction: a named colour, or the light that was seen if it was a single one."""
        seen = self._expert.seen
        if len(seen) == 1 and self._task.tick >= LIGHTS_OVER and self._random.random() < 0.5:
            self._task.instruct(Kind.LIT, INSTRUCTIONS[Kind.LIT], seen)
        else:
            goal = int(self._random.integers(len(BUTTONS)))
            self._task.instruct(Kind.NAMED, name_button(goal), (goal,))
        self._instructions[len(self._seen)] = self._task.scenario.instruction

    def _events(self) -> list[Event]:
        kept = self._kept()
        said_after = int(self._random.choice(kept)) if self._random.random() < _SPOKEN else None
        events: list[Event] = []
        for index in kept:
            if index in self._instructions:
                events.append(Instruct(self._instructions[index]))
            events.append(Observe(index))
            if index == said_after and index != kept[-1]:
                events.append(Say(self._line([i for i in kept if i <= index])))
        return [*events, Say(self._line(kept))]

    def _kept(self) -> list[int]:
        """Observations that the memory holds: all, or without those that a rollback to an earlier one forgets.

        The lights stay in memory, and so does every press.
        """
        count = len(self._seen)
        everything = list(range(count))
        if self._switch_at is not None or self._random.random() >= _CUT:
            return everything
        lit = [index for index in everything if any(self._lit[index])]
        needs_lights = self._task.scenario.kind is not Kind.NAMED
        first = (lit[-1] + 1 if lit else 1) if needs_lights else 1
        last = next((index for index in everything if self._presses[index]), count)
        if last - first < 2:
            return everything
        gap = sorted(int(index) for index in self._random.choice(np.arange(first, last), 2, replace=False))
        return [index for index in everything if not gap[0] <= index < gap[1]]

    def _line(self, kept: Sequence[int]) -> str:
        order: list[str] = []
        for index in kept:
            order += [name for name, lit in zip(BUTTONS, self._lit[index], strict=True) if lit and name not in order]
        return f"lit: {', '.join(order) or 'none'}"

    def _draw_pushes(self, kind: Kind) -> list[Disturbance]:
        random = self._random
        if random.random() >= _PUSHED:
            return []
        start = _TYPICAL_START[kind]
        return [
            Disturbance(
                tick=start + int(random.integers(30 * number, 18 + 30 * number)),
                ticks=int(random.integers(2, 8)),
                offset=tuple(random.normal(0.0, _PUSH, len(JOINTS)) * (1, 1, 1, 1, 1, 0.5)),
            )
            for number in range(int(random.integers(1, 3)))
        ]

    def _noise(self) -> Callable[[_Array], _Array]:
        random, scale = self._random, _NOISE * (self._random.random() < _NOISY)
        drift = np.zeros(len(JOINTS))

        def disturb(targets: _Array) -> _Array:
            nonlocal drift
            drift = 0.7 * drift + random.normal(0.0, scale, len(JOINTS)) if scale else drift
            return targets + drift

        return disturb


def _rows(cadence: int) -> int:
    """Return the rows that are left when the next observation is due `cadence` ticks after the last one."""
    return HORIZON - 1 - cadence
