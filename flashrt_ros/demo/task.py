# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's task: buttons light up for a moment, and an instruction says which to press.

Time is counted in control ticks of 0.1 s. A light burns for LIT_TICKS, so that a policy that looks every LIT_TICKS
ticks or more often sees each of them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.demo.world import BUTTONS, JOINTS, World
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

TICK = 0.1  # s
LIT_TICKS = 10
LIGHT_SPACING = 16  # ticks from the beginning of one light to that of the next
LIGHTS_OVER = 34  # all lights are dark from this tick on, whatever the seed
_FIRST_LIGHT = (2, 6)  # ticks, both included
_STATE = struct.Struct("<qqB4?B")  # tick, tick of the instruction, outcome, caps that are down, number of presses


class Kind(StrEnum):
    """What kind of instruction."""

    NAMED = "named"
    LIT = "lit"
    ORDER = "order"


class Outcome(StrEnum):
    """How an episode stands."""

    RUNNING = "running"
    SUCCESS = "success"
    WRONG = "wrong button"
    TIMEOUT = "time is up"


INSTRUCTIONS = {Kind.LIT: "press the button that lit up", Kind.ORDER: "press the buttons that lit up, in order"}

TIME_LIMIT = {Kind.NAMED: 100, Kind.LIT: 120, Kind.ORDER: 180}
"""Ticks from the instruction on."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a seed draws besides the scene.

    Attributes:
        kind: of the instruction.
        instruction: what the policy is told.
        lights: buttons (index in BUTTONS) that light up, in turn.
        first_light: the tick at which the first does.
        goals: buttons to press, in this order.
    """

    kind: Kind
    instruction: str
    lights: tuple[int, ...]
    first_light: int
    goals: tuple[int, ...]


def draw_scenario(kind: Kind, seed: int) -> Scenario:
    """Draw the scenario of an episode; a function of its arguments alone.

    With a named colour none, one or two buttons light up, and mean nothing.
    """
    random = np.random.default_rng((seed, list(Kind).index(kind)))
    order = tuple(int(button) for button in random.permutation(len(BUTTONS)))
    first = int(random.integers(_FIRST_LIGHT[0], _FIRST_LIGHT[1] + 1))
    if kind is Kind.NAMED:
        named = int(random.integers(len(BUTTONS)))
        return Scenario(kind, name_button(named), order[: random.integers(3)], first, (named,))
    lights = order[: 1 if kind is Kind.LIT else 2]
    return Scenario(kind, INSTRUCTIONS[kind], lights, first, lights)


def name_button(button: int) -> str:
    """Return the instruction that names a button by its colour."""
    return f"press the {BUTTONS[button]} button"


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A push: for `ticks` from `tick` on, `offset` (rad, one a joint) is added to the targets."""

    tick: int
    ticks: int
    offset: tuple[float, ...]

    def at(self, tick: int) -> NDArray[np.float64]:
        """Return the offset at a tick, [joints]."""
        active = self.tick <= tick < self.tick + self.ticks
        return np.array(self.offset) if active else np.zeros(len(JOINTS))


class Task:
    """An episode in a world: steps it, lights the buttons, and judges what is pressed.

    The same scenario, seed, disturbances and targets give the same bytes on one machine.

    Attributes:
        world: the simulation; the task resets it.
        scenario: of the episode.
        tick: ticks since the reset.
        presses: buttons that went down, in order; the same one again at once counts once.
        outcome: how the episode stands; it no longer changes once it is not RUNNING.
    """

    def __init__(self, world: World, scenario: Scenario, seed: int, disturbances: Sequence[Disturbance] = ()) -> None:
        self.world = world
        self.scenario = scenario
        self.disturbances = tuple(disturbances)
        self.tick = 0
        self.presses: tuple[int, ...] = ()
        self.outcome = Outcome.RUNNING
        self._down: tuple[bool, ...] = (False,) * len(BUTTONS)
        self._instructed = 0
        world.reset(seed)
        self._light()

    def lit(self) -> tuple[bool, ...]:
        """Whether each button is lit at the present tick."""
        since = self.tick - self.scenario.first_light
        turn, burning = divmod(since, LIGHT_SPACING)
        lights = self.scenario.lights
        lit = lights[turn] if 0 <= turn < len(lights) and burning < LIT_TICKS else None
        return tuple(button == lit for button in range(len(BUTTONS)))

    def instruct(self, kind: Kind, instruction: str, goals: Sequence[int]) -> None:
        """Judge by other goals from now on, and give their time limit again."""
        self.scenario = replace(self.scenario, kind=kind, instruction=instruction, goals=tuple(goals))
        self.presses = ()
        self.outcome = Outcome.RUNNING
        self._instructed = self.tick

    def step(self, targets: Sequence[float] | NDArray[np.float64]) -> Outcome:
        """Move on by one tick with the servos pulling towards `targets` (rad); see World.step."""
        pushed = np.asarray(targets, dtype=np.float64)
        for disturbance in self.disturbances:
            pushed = pushed + disturbance.at(self.tick)
        self.world.step(pushed, TICK)
        self.tick += 1
        self._light()
        self._judge()
        return self.outcome

    def save(self) -> bytes:
        """Return the state of world and episode; scenario and disturbances are not in it."""
        outcome = list(Outcome).index(self.outcome)
        counts = (self.tick, self._instructed, outcome, *self._down, len(self.presses))
        return _STATE.pack(*counts) + bytes(self.presses) + self.world.save()

    def load(self, saved: bytes) -> None:
        """Take over what `save` gave; DAMAGED or MANIFEST_MISMATCH as World.load."""
        if len(saved) < _STATE.size:
            raise FlashrtError(ErrorCode.DAMAGED, f"{len(saved)} bytes are not a whole saved task: save it again")
        tick, instructed, outcome, *down, count = _STATE.unpack_from(saved)
        presses, world = saved[_STATE.size : _STATE.size + count], saved[_STATE.size + count :]
        self.world.load(world)
        self.tick, self._instructed, self.outcome = tick, instructed, list(Outcome)[outcome]
        self.presses, self._down = tuple(presses), tuple(down)

    def _light(self) -> None:
        self.world.set_lights(self.lit())

    def _judge(self) -> None:
        down = self.world.pressed
        new = [button for button in range(len(BUTTONS)) if down[button] and not self._down[button]]
        self._down = down
        if self.outcome is not Outcome.RUNNING:
            return
        self.presses += tuple(button for button in new if self.presses[-1:] != (button,))  # a cap may bounce
        goals = self.scenario.goals
        if self.presses != goals[: len(self.presses)]:
            self.outcome = Outcome.WRONG
        elif len(self.presses) == len(goals):
            self.outcome = Outcome.SUCCESS
        elif self.tick - self._instructed >= TIME_LIMIT[self.scenario.kind]:
            self.outcome = Outcome.TIMEOUT


def saved_tick(saved: bytes) -> int:
    """Return the tick of a state that Task.save gave; DAMAGED if it is none."""
    if len(saved) < _STATE.size:
        raise FlashrtError(ErrorCode.DAMAGED, f"{len(saved)} bytes are not a whole saved task: save it again")
    tick: int = _STATE.unpack_from(saved)[0]
    return tick


def saved_world(saved: bytes) -> bytes:
    """Return the world's part of a state that Task.save gave, for World.load; DAMAGED if it is none."""
    saved_tick(saved)
    presses: int = _STATE.unpack_from(saved)[-1]
    return saved[_STATE.size + presses :]
