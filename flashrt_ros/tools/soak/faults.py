# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The faults: what is done, what must become of the arm, within what time, and how it is undone."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace

import rclpy
from lifecycle_msgs.msg import Transition
from sensor_msgs.msg import JointState

from flashrt_ros.node import qos
from flashrt_ros.tools.soak.client import VICTIMS
from flashrt_ros.tools.soak.link import VIEWS
from flashrt_ros.tools.soak.rig import Rig, StuckError

_STILL = 3
"""Periods without an action after which the arm counts as held."""

_STOPPED_FOR = 1.0  # s
_JUMP = 5.0  # s
_RIVAL_PERIOD = 0.1  # s; command_node looks at the graph with each heartbeat
_ANSWER = 1.0  # s


@dataclass(frozen=True, slots=True)
class Expected:
    """What must become of the arm while a fault lasts.

    Attributes:
        what: in words.
        bound: seconds from the fault within which it must be so.
        holds: whether it is.
        stops: the arm is held then, and nothing is commanded from then on.
        anywhere: it is held where it is measured, or told nothing if that is not known, as after any pause of
            command_node; else where it was sent last.
        since: when the fault was there, s of `time.monotonic`.
    """

    what: str
    bound: float
    holds: Callable[[], bool]
    stops: bool = True
    anywhere: bool = False
    since: float = field(default_factory=time.monotonic)


Fault = Callable[[Rig, random.Random], AbstractContextManager[Expected]]


def _closes(rig: Rig, bound: float, *tokens: str) -> Expected:
    """The gate closes, for one of these reasons, or because a busy machine let command_node stand still before."""
    watch = rig.watch
    what = f"a closed gate: {' or '.join(tokens)}"
    return Expected(what, bound, lambda: not watch.gate.open and (watch.token in tokens or watch.paused))


def _period(rig: Rig) -> float:
    return rig.contract.action.period * 1e-9


def _between_ticks(rig: Rig, chance: random.Random) -> None:
    """Spin until no tick is at work: some time behind one, or behind the time of two where none comes."""
    began, period, watch = time.monotonic(), _period(rig), rig.watch
    rig.until(
        lambda: watch.moved_at > began or time.monotonic() > began + 2 * period, _ANSWER, "a tick, or the lack of one"
    )
    rig.spin(chance.uniform(0.0, 0.5) * period)


# ---- what the robot shows ----


def _no_rows_left(rig: Rig) -> Expected:
    """The chunk in execution is finished, the arm is told to hold, and no other chunk comes."""
    period, watch = _period(rig), rig.watch
    longest = watch.horizon * period + rig.contract.observation.max_age
    still = _STILL * period
    return Expected(
        "a held arm",
        longest + still,
        lambda: (time.monotonic() - watch.moved_at > still) and (watch.held() or not watch.gate.open),
    )


def _joints_trouble(rig: Rig) -> Expected:
    return _closes(rig, rig.contract.observation.max_age + _period(rig), "joints")


@contextmanager
def _spoilt(how: set[str], inputs: Iterable[str], rig: Rig, expected: Callable[[Rig], Expected]) -> Iterator[Expected]:
    """Spoil inputs, in a way of the link; what is expected counts from then on."""
    how.update(inputs)
    try:
        yield expected(rig)
    finally:
        how.clear()


def camera_stops(rig: Rig, chance: random.Random) -> AbstractContextManager[Expected]:
    """One camera or both show nothing any more."""
    views = chance.sample(VIEWS, chance.randint(1, len(VIEWS)))
    return _spoilt(rig.link.stopped, views, rig, _no_rows_left)


def camera_freezes(rig: Rig, chance: random.Random) -> AbstractContextManager[Expected]:
    """Images go on coming with the stamp of one moment."""
    return _spoilt(rig.link.frozen, [chance.choice(VIEWS)], rig, _no_rows_left)


def joints_freeze(rig: Rig, chance: random.Random) -> AbstractContextManager[Expected]:
    """Joint states go on coming with the stamp of one moment."""
    return _spoilt(rig.link.frozen, ["state"], rig, _joints_trouble)


def joints_stop(rig: Rig, chance: random.Random) -> AbstractContextManager[Expected]:
    """No joint states come."""
    return _spoilt(rig.link.stopped, ["state"], rig, _joints_trouble)


def joints_nan(rig: Rig, chance: random.Random) -> AbstractContextManager[Expected]:
    """The encoders measure NaN."""
    return _spoilt(rig.link.broken, ["state"], rig, _joints_trouble)


# ---- time ----


@contextmanager
def clock_back(rig: Rig, chance: random.Random) -> Iterator[Expected]:
    """ROS time is set back."""
    rig.link.jump(-chance.uniform(1.0, _JUMP))
    yield _closes(rig, 2 * _period(rig), "time", "joints")


@contextmanager
def clock_forward(rig: Rig, chance: random.Random) -> Iterator[Expected]:
    """ROS time is set forward: what was planned is past."""
    epoch = rig.watch.gate.epoch
    rig.link.jump(chance.uniform(1.0, _JUMP))
    since, watch = time.monotonic(), rig.watch

    def safe() -> bool:
        return not watch.gate.open or watch.gate.epoch > epoch or watch.moved_at > since + _period(rig)

    yield Expected("a closed gate, or motion within the limits", _ANSWER, safe, stops=False)


# ---- processes ----


@contextmanager
def policy_stopped(rig: Rig, chance: random.Random) -> Iterator[Expected]:
    """SIGSTOP of policy_node for a second."""
    rig.signal("policy", signal.SIGSTOP)
    due = time.monotonic() + _STOPPED_FOR
    try:
        yield _closes(rig, rig.contract.heartbeat_timeout + _period(rig), "heartbeat")
        rig.spin(max(0.0, due - time.monotonic()))
    finally:
        rig.signal("policy", signal.SIGCONT)


@contextmanager
def command_stopped(rig: Rig, chance: random.Random) -> Iterator[Expected]:
    """SIGSTOP of command_node for a second: once it runs again, it runs nothing of what was planned before.

    It comes between two ticks. What a tick has handed to the middleware leaves even if the stop is within that call.
    """
    _between_ticks(rig, chance)
    rig.signal("command", signal.SIGSTOP)
    try:
        rig.spin(_STOPPED_FOR)
        count = rig.watch.count
    finally:
        rig.signal("command", signal.SIGCONT)
    yield replace(_closes(rig, _period(rig), "heartbeat", "joints", "held", "time"), anywhere=True)
    after = rig.watch.commanded_since(count)
    if not all(rig.watch.was_measured(command.positions) for command in after):
        raise StuckError("an action ran that was planned before the stop")
    if len(after) > 1:
        raise StuckError(f"{len(after)} commands came after the stop; one may, to hold")


@contextmanager
def client_dies(rig: Rig, chance: random.Random) -> Iterator[Expected]:
    """A client is killed in the middle of a call."""
    what = chance.choice(VICTIMS)
    command = [sys.executable, "-m", "flashrt_ros.tools.soak.client", what]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            rig.readable(process.stdout)
            process.stdout.readline()
            print("go", file=process.stdin, flush=True)
            rig.until(lambda: process.poll() is not None, _ANSWER, "the end of a client")
        finally:
            process.kill()
    if what == "restore":
        yield _closes(rig, _period(rig), "held")
    else:
        rig.call("policy/list_capsules", _ANSWER)
        yield Expected("others are served", _ANSWER, lambda: True, stops=False)


@contextmanager
def _deactivated(rig: Rig, node: str, *tokens: str) -> Iterator[Expected]:
    expected = _closes(rig, _period(rig), *tokens)
    rig.transition(node, Transition.TRANSITION_DEACTIVATE)
    try:
        yield expected
    finally:
        activated = rig.transition(node, Transition.TRANSITION_ACTIVATE)
    if not activated:
        raise StuckError(f"{node}_node was not activated again")


def policy_deactivated(rig: Rig, chance: random.Random) -> AbstractContextManager[Expected]:
    """policy_node is deactivated, and activated again."""
    return _deactivated(rig, "policy", "held")


def command_deactivated(rig: Rig, chance: random.Random) -> AbstractContextManager[Expected]:
    """command_node is deactivated, and activated again."""
    return _deactivated(rig, "command", "inactive")


# ---- around the robot ----


@contextmanager
def second_publisher(rig: Rig, chance: random.Random) -> Iterator[Expected]:
    """Another node publishes on the command topic."""
    node = rclpy.create_node("intruder")
    try:
        node.create_publisher(JointState, rig.contract.action.commands[0].topic, qos.COMMAND)
        yield _closes(rig, _RIVAL_PERIOD + _period(rig), "publisher")
    finally:
        node.destroy_node()


@contextmanager
def e_stop(rig: Rig, chance: random.Random) -> Iterator[Expected]:
    """The enable input says false, later true: that alone moves nothing."""
    rig.enable(False)
    try:
        yield _closes(rig, _period(rig), "disabled")
    finally:
        rig.enable(True)
    rig.until(lambda: rig.watch.token == "enabled", _ANSWER, "the enabled gate")
    count = rig.watch.count
    rig.spin(_STILL * _period(rig))
    if rig.watch.gate.open or rig.watch.count > count:
        raise StuckError("the arm was commanded after the enable alone")


FAULTS: dict[str, Fault] = {
    "a camera stops": camera_stops,
    "an image's stamp freezes": camera_freezes,
    "joint states stop": joints_stop,
    "the joints' stamp freezes": joints_freeze,
    "the joints are NaN": joints_nan,
    "the clock goes back": clock_back,
    "the clock jumps forward": clock_forward,
    "policy_node is stopped": policy_stopped,
    "command_node is stopped": command_stopped,
    "a client dies in a call": client_dies,
    "policy_node is deactivated": policy_deactivated,
    "command_node is deactivated": command_deactivated,
    "a second publisher": second_publisher,
    "the e-stop is pressed": e_stop,
}
