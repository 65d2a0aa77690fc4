# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A scripted expert that solves the task: what it does next is a function of the joints and of what it has seen."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.demo.task import Kind, Task
from flashrt_ros.demo.world import BUTTONS

HORIZON = 16
"""Rows of a plan, one a control tick."""
PATIENCE = 2
"""Looks without any light after which there is none to wait for."""

_UPPER, _FORE, _HAND, _SHOULDER = 0.13, 0.13, 0.109, 0.08  # m, see arm.xml; the hand up to the fingertips
_REACH = (0.10, 0.235)  # m from the pan axis, with the hand pointing down
_HOVER = 0.055  # m; the fingertips pass above the caps, which end at 0.023
_PRESSED = 0.010  # m
_SPEED = 0.08  # rad a tick, the fastest joint
_DESCENT = 0.012  # m a tick
_GRIPPER = 0.1  # rad

_Vector = NDArray[np.float64]


def tip(joints: _Vector) -> _Vector:
    """Return where the fingertips are, (x, y, z) in m, for joints in the order of JOINTS."""
    pan, lift, elbow, pitch = joints[:4]
    bends = np.array([lift, lift + elbow, lift + elbow + pitch])
    lengths = np.array([_UPPER, _FORE, _HAND])
    out, up = lengths @ np.sin(bends), _SHOULDER + lengths @ np.cos(bends)
    return np.array([out * math.cos(pan), out * math.sin(pan), up])


def above(place: _Vector, height: float) -> _Vector:
    """Return joints that hold the fingertips, pointing down, `height` m above a place (x, y) on the table."""
    out = float(np.clip(math.hypot(place[0], place[1]), *_REACH))
    up = height + _HAND - _SHOULDER
    bend = (out**2 + up**2 - _UPPER**2 - _FORE**2) / (2 * _UPPER * _FORE)
    elbow = math.acos(min(max(bend, -1.0), 1.0))
    lift = math.atan2(out, up) - math.atan2(_FORE * math.sin(elbow), _UPPER + _FORE * math.cos(elbow))
    return np.array([math.atan2(place[1], place[0]), lift, elbow, math.pi - lift - elbow, 0.0, _GRIPPER])


class Expert:
    """Plans chunks for a task; it knows where the buttons are, but of the lights only what it was shown.

    Attributes:
        seen: buttons that it has seen lit, in order.
    """

    def __init__(self, task: Task, guess: tuple[int, ...] = ()) -> None:
        """`guess` is what it presses when it has looked PATIENCE times in vain for lights."""
        self._task = task
        self._guess = guess
        self._looks = 0
        self._lit = False
        self.seen: tuple[int, ...] = ()

    def look(self) -> None:
        """See the lights as they are at this tick."""
        lit = self._task.lit()
        self._looks += 1
        self._lit = any(lit)
        self.seen += tuple(button for button in range(len(BUTTONS)) if lit[button] and button not in self.seen)

    @property
    def goals(self) -> tuple[int, ...]:
        """What it will press; empty as long as it waits for lights."""
        scenario = self._task.scenario
        if scenario.kind is Kind.NAMED:
            return scenario.goals
        needed = 2 if scenario.kind is Kind.ORDER else 1
        if not self.seen:
            return self._guess if self._looks > PATIENCE else ()
        return self.seen[:needed] if len(self.seen) >= needed and not self._lit else ()

    def plan(self, joints: _Vector) -> _Vector:
        """Return targets [HORIZON, joints] in rad from measured joints on; row 0 is for the present tick."""
        goals = self.goals
        if not goals:
            return np.tile(joints, (HORIZON, 1))
        pressed = len(self._task.presses)
        goal = goals[min(pressed, len(goals) - 1)]
        place = self._task.world.data.mocap_pos[self._task.world.model.body(f"socket_{BUTTONS[goal]}").mocapid[0], :2]
        rows = []
        for _ in range(HORIZON):
            joints = _advance(joints, place, press=pressed < len(goals))
            rows.append(joints)
        return np.array(rows)


def _advance(joints: _Vector, place: _Vector, press: bool) -> _Vector:
    """One tick: rise if too low, go across at a safe height, go down once above the place."""
    x, y, height = tip(joints)
    apart = math.hypot(x - place[0], y - place[1])
    if press and apart < 0.003 + 0.15 * max(_HOVER - height, 0.0):
        wanted = above(place, max(height - _DESCENT, _PRESSED))
    elif (height < _HOVER - 0.01 and apart > 0.012) or (not press and height < _HOVER - 0.01):
        wanted = above(np.array([x, y]), _HOVER)
    else:
        wanted = above(place, _HOVER)
    change = wanted - joints
    return joints + change * min(1.0, _SPEED / max(float(np.abs(change).max()), 1e-9))
