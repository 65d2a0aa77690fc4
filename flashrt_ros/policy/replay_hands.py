# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Gives the chunks of a replay to the controller of command_node, in the order in which it got them, without waiting.

A bag does not say when a message reached command_node; what command_node said itself does: a gate's change tells when
it took the policy's state, and the first executed row of a chunk tells at which tick it had that chunk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.policy.contract import Contract
from flashrt_ros.policy.controller import Controller, ExecutedTick
from flashrt_ros.policy.gate import Gate, GateState
from flashrt_ros.policy.joint_merger import JointMerger
from flashrt_ros.policy.lockstep import LockstepController
from flashrt_ros.policy.replay_recording import Recording, Timed, stamp_of
from flashrt_ros.policy.timed import TimedController

_BEFORE_TICK, _TICK = -2.0, -1.0
"""Ranks of the events of an instant that are of no epoch; a chunk is one where a timer paces the ticks."""

_CHUNK_FAULTS = {"start_tolerance", "bad_chunk"}
"""Reasons of a gate that a chunk has closed."""


@dataclass(frozen=True, slots=True)
class SentCommand:
    """Joint targets [joints] of a tick; `safety`: the safety action, for the joints that are held."""

    positions: NDArray[np.float64]
    safety: bool


@dataclass(slots=True)
class Hands:
    """What a controller sent, by the tick's stamp (ns), and how its gate changed.

    Attributes:
        guessed: ticks whose measured joints are not known.
        held: columns of the joints that a safety action names.
    """

    commands: dict[int, SentCommand] = field(default_factory=dict)
    ticks: dict[int, ExecutedTick] = field(default_factory=dict)
    gates: list[GateState] = field(default_factory=list)
    guessed: set[int] = field(default_factory=set)
    held: Sequence[int] = ()

    def command(self, stamp: int, rows: NDArray[np.float64]) -> None:
        """Take a command; what is handed over with it will be commanded itself."""
        self.commands[stamp] = SentCommand(np.array(rows[0]), safety=False)

    def safety(self, stamp: int, rows: NDArray[np.float64]) -> None:
        """Take a command of a safety action; as `command`."""
        self.commands[stamp] = SentCommand(rows[0, list(self.held)], safety=True)

    def executed(self, tick: ExecutedTick) -> None:
        """Take a tick; the last word on it counts."""
        self.ticks[tick.stamp] = tick

    def gate(self, state: GateState) -> None:
        """Take a change of the gate."""
        self.gates.append(state)


@dataclass(frozen=True, slots=True)
class _Event:
    """What happened at `at` ns; `rank`: the position among the gate's changes that tell of it."""

    at: int
    rank: float
    apply: Callable[[Controller], None]
    epoch: int = 0

    @property
    def key(self) -> tuple[int, int, float]:
        """What a chunk did in its epoch came before the epoch that ended it, at the same instant."""
        return self.at, self.epoch, self.rank


def replay_hands(recording: Recording, actions: Mapping[int, NDArray[np.float64]]) -> Hands | None:
    """Run the controller over a recording.

    Args:
        recording: of both nodes' topics.
        actions: by the position of an ActionChunk message in the recording: the rows to run instead of its own.

    Returns:
        What it sent from the first raised epoch on; None where the bag does not tell what command_node did.
    """
    gates = recording.other["Gate"]
    if not gates or not recording.other["Executed"] or not recording.other["PolicyState"]:
        return None
    hands, clock, events = Hands(), _Clock(), _Events(recording, actions)
    controller = _controller(recording.contract, gates[0].message, events.epoch, hands, clock)
    for event in sorted(events.all(), key=lambda event: event.key):
        clock.now = max(clock.now, event.at)
        event.apply(controller)
    hands.guessed = events.guessed
    return hands


def recorded_hands(recording: Recording) -> Hands:
    """What the bag says that command_node sent."""
    hands = Hands()
    for timed in recording.other["Executed"]:
        m = timed.message
        stamp = stamp_of(m.stamp)
        hands.executed(ExecutedTick(stamp, m.epoch, m.active, m.chunk_id, m.cursor, m.remaining, m.steps, m.infer))
    for timed in recording.other["Gate"]:
        hands.gates.append(_gate_state(timed.message))
    for stamp, by_name in _commands(recording).items():
        joints = [joint for joint in recording.contract.action.joints if joint in by_name]
        positions = np.array([by_name[joint] for joint in joints], np.float64)
        tick = hands.ticks.get(stamp)
        hands.commands[stamp] = SentCommand(positions, tick is None or not tick.active)
    return hands


@dataclass(slots=True)
class _Clock:
    now: int = 0


def _controller(contract: Contract, first: Any, epoch: int, hands: Hands, clock: _Clock) -> Controller:
    gate = Gate(epoch=epoch, enabled=first.enabled, dry_run=first.dry_run, exact_allowed=True, now=0)
    controller: Controller
    if contract.lockstep is not None:
        controller = LockstepController(contract, hands, gate, lambda: clock.now, contract.lockstep.apply_after)
    else:
        controller = TimedController(contract, hands, gate, lambda: clock.now, lambda: None)
    hands.held = controller.safety.columns
    controller.activate()
    controller.policy_state(epoch, running=False, step_limit=0, reason="")
    return controller


class _Events:
    """What happened to command_node, each with the tick that it belongs to.

    Attributes:
        epoch: the controller's before all of it.
        guessed: ticks of which not all is known that the command depends on.
    """

    def __init__(self, recording: Recording, actions: Mapping[int, NDArray[np.float64]]) -> None:
        self._recording = recording
        self._actions = actions
        self._lockstep = recording.contract.lockstep is not None
        self._gates = [_gate_state(timed.message) for timed in recording.other["Gate"]]
        self._ticks = {stamp_of(timed.message.stamp) for timed in recording.other["Executed"]}
        self._since, self._from = self._start()
        self.epoch = self._since - 1
        before = [gate for gate in self._gates if gate.epoch < self._since]
        # A gate that was open holds the last command, which was sent before the replay begins.
        self.guessed: set[int] = {self._from} if before and before[-1].open else set()

    def _start(self) -> tuple[int, int]:
        """An epoch and the tick of its safety action, the last of the first row of such ticks.

        What was done before, and which ticks had been answered already when the recording began, is not known. Behind
        this tick nothing is left of it: the next one waits for a chunk.
        """
        found, told = None, [timed.message for timed in self._recording.other["Executed"]]
        ticks = {stamp_of(message.stamp): message.epoch for message in told}
        other = {stamp_of(message.stamp) for message in told if message.active or message.infer}
        for stamp in sorted(ticks):
            if stamp not in other:
                found = ticks[stamp], stamp
            elif found is not None:
                break
        return found if found is not None else (max(ticks.values()) + 1, 0)

    def all(self) -> list[_Event]:
        return [*self._instants(), *self._states(), *self._outside(), *self._chunks()]

    def _instants(self) -> list[_Event]:
        """Measured joints, and what makes the controller tick."""
        measured = self._measured()
        clock = {stamp_of(timed.message.clock) for timed in self._recording.other["Clock"]}
        if self._lockstep and measured:
            # The recorder may have come later than command_node. What that did before is told by its latched ticks
            # alone: they are done again, with the joints of another instant.
            self.guessed |= self._ticks - set(measured)
            known = sorted(measured)
            before = {at: known[max(0, bisect_right(known, at) - 1)] for at in self.guessed}
            measured = {at: measured[nearest] for at, nearest in before.items()} | measured
            clock = {at for at in clock | self._ticks if at >= self._from}
        events = [_Event(at, _BEFORE_TICK, _measure(*state, at)) for at, state in measured.items()]
        return [*events, *(_Event(at, _TICK, _tick(at)) for at in (clock if self._lockstep else self._ticks))]

    def _measured(self) -> dict[int, tuple[Sequence[str], Any]]:
        """Names and positions by stamp, of the topics that measure commanded joints."""
        bag, contract = self._recording.bag, self._recording.contract
        merger, found = JointMerger(contract.observation, contract.action.joints), {}
        index_of = {self._recording.parts[source.key].topic: index for index, source in enumerate(merger.sources)}
        for topic, time, raw in bag.messages([*index_of]):
            index, message = index_of[topic], bag.decode(topic, raw)
            stamp = stamp_of(message.header.stamp) if merger.sources[index].stamp == "header" else time
            joints = merger.merge(index, message, stamp)
            if joints is not None:
                found[joints.stamp] = (joints.names, joints.positions)
        return found

    def _states(self) -> list[_Event]:
        events, known = [], set()
        for timed in self._recording.other["PolicyState"]:
            m = timed.message
            running = m.state == 1
            key = (m.epoch, running)
            if m.epoch < self._since or key in known:
                continue
            known.add(key)
            at, rank = self._adopted(m.epoch, running, timed)
            state = _state(m.epoch, running, m.step_limit, m.reason)
            events.append(_Event(max(at, self._from), rank, state, m.epoch))
        return events

    def _outside(self) -> list[_Event]:
        """What people and watchdogs did to the gate, which nothing else in the bag tells of."""
        events = []
        for order, (timed, gate) in enumerate(zip(self._recording.other["Gate"], self._gates, strict=True)):
            action = _FROM_OUTSIDE.get(gate.reason.partition(":")[0])
            at = stamp_of(timed.message.stamp)
            if action is not None and at > self._from:
                events.append(_Event(at, order, action, gate.epoch))
        return events

    def _chunks(self) -> list[_Event]:
        first: dict[tuple[int, int], int] = {}
        for timed in self._recording.other["Executed"]:
            m = timed.message
            first.setdefault((m.epoch, m.chunk_id), stamp_of(m.stamp))
        events = []
        for order, timed in enumerate(self._recording.other["ActionChunk"]):
            m = timed.message
            at = first.get((m.epoch, m.chunk_id))
            if at is None and self._ended_by_a_fault(m.epoch):
                at = self._tick_at(timed)
            if at is not None and m.epoch >= self._since:
                rank, epoch = (self._used(m.epoch), m.epoch) if self._lockstep else (_BEFORE_TICK, 0)
                events.append(_Event(at, rank, _chunk(m, self._actions.get(order)), epoch))
        return events

    def _adopted(self, epoch: int, running: bool, timed: Timed) -> tuple[int, float]:
        """When command_node took a state: what its gate said then, else the tick at which it was published."""
        for rank, timed_gate in enumerate(self._recording.other["Gate"]):
            m = timed_gate.message
            armed = m.reason.partition(":")[0] in ("waiting", "spent", "disabled", "released") or m.open
            if m.epoch == epoch and (armed or not running):
                return stamp_of(m.stamp), rank
        return self._tick_at(timed), float(running)

    def _used(self, epoch: int) -> float:
        """The rank of an epoch's chunks: just before the gate opened, or was closed by one."""
        for rank, gate in enumerate(self._gates):
            if gate.epoch == epoch and (gate.open or gate.reason.partition(":")[0] in _CHUNK_FAULTS):
                return rank - 0.5
        return float(len(self._gates))

    def _ended_by_a_fault(self, epoch: int) -> bool:
        tokens = {gate.reason.partition(":")[0] for gate in self._gates if gate.epoch == epoch}
        return bool(tokens & _CHUNK_FAULTS)

    def _tick_at(self, timed: Timed) -> int:
        """The newest tick that had been recorded before a message was."""
        told = [t for t in self._recording.other["Executed"] if t.time <= timed.time]
        return stamp_of(told[-1].message.stamp) if told else 0


def _measure(names: Sequence[str], positions: Any, at: int) -> Callable[[Controller], None]:
    return lambda controller: controller.measured(names, positions, at)


def _tick(stamp: int) -> Callable[[Controller], None]:
    def tick(controller: Controller) -> None:
        if isinstance(controller, LockstepController):
            controller.clock(stamp)
        elif isinstance(controller, TimedController):
            controller.tick()

    return tick


def _state(epoch: int, running: bool, step_limit: int, reason: str) -> Callable[[Controller], None]:
    return lambda controller: controller.policy_state(epoch, running=running, step_limit=step_limit, reason=reason)


def _chunk(m: Any, rows: NDArray[np.float64] | None) -> Callable[[Controller], None]:
    data = m.data if rows is None else rows.ravel()
    return lambda controller: controller.chunk(
        epoch=m.epoch,
        chunk_id=m.chunk_id,
        observation_stamp=stamp_of(m.observation_stamp),
        names=m.joint_names,
        data=data,
        horizon=m.horizon,
        start=m.start,
        dt=stamp_of(m.dt),
        exact=m.exact,
    )


def _gate_state(m: Any) -> GateState:
    return GateState(m.epoch, m.open, m.dry_run, m.enabled, stamp_of(m.closed_at), m.reason)


def _commands(recording: Recording) -> dict[int, dict[str, float]]:
    """Values by joint, by stamp, of all commands together; without those of a type without a stamp."""
    field, found = recording.contract.action.interface, dict[int, dict[str, float]]()
    for command, message in recording.commands:
        if not hasattr(message, "header"):
            continue
        ours = dict(zip(command.named(command.joints), command.joints, strict=True))
        names = [ours[name] for name in (message.name if hasattr(message, "name") else message.joint_names)]
        values = getattr(message, field) if hasattr(message, field) else message.points[0].positions
        found.setdefault(stamp_of(message.header.stamp), {}).update(zip(names, values, strict=True))
    return found


def _hold(controller: Controller) -> None:
    controller.hold()


_FROM_OUTSIDE: dict[str, Callable[[Controller], None]] = {
    "hold": _hold,
    "released": lambda controller: controller.release(),
    "disabled": lambda controller: controller.enable(False),
    "enabled": lambda controller: controller.enable(True),
    "heartbeat": lambda controller: controller.heartbeat_lost(),
    "inactive": lambda controller: controller.deactivate(),
    "publisher": lambda controller: controller.rivals("another node"),
}
