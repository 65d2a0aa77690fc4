# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The commanded half of a contract: joints, limits, how chunks are executed, and what happens on trouble."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from flashrt_ros.policy.contract_keys import (
    Conversion,
    among,
    choice_of,
    covered,
    names_of,
    quoted,
    range_of,
    renamed_of,
    some_of,
    topic_of,
)
from flashrt_ros.policy.contract_observation import Observation
from flashrt_ros.policy.yaml_reader import Section, Value

TRAJECTORY = "trajectory_msgs/msg/JointTrajectory"
COMMAND_TYPES = ("sensor_msgs/msg/JointState", "std_msgs/msg/Float64MultiArray", TRAJECTORY)
STAMPED_COMMAND_TYPES = NAMED_COMMAND_TYPES = ("sensor_msgs/msg/JointState", TRAJECTORY)
ACTION_MODES = ("delta", "absolute")
STRATEGIES = ("sync", "async", "rtc")
HANDOVERS = ("point", "trajectory")
INTERFACES = ("position", "velocity")
SAFETY_ACTIONS = ("hold", "release", "zero")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of each commanded joint, in the order of `Action.joints`: rad or m, and rad or m a control tick.

    `acceleration` bounds by how much the steps of a hold, or of commanded velocities, may differ from one tick to the
    next; None: by nothing. `following`: rad or m by which a joint may lag behind its command, infinite for one that
    may by any; None: all may.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    step: tuple[float, ...]
    acceleration: tuple[float, ...] | None = None
    following: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """Where the commands of `joints` go, in that order. All of an action have the same handover and interface.

    `names`: what the message calls `joints`; empty: the same.
    `handover` is "point", one target a tick, or "trajectory", up to `max_handover` seconds of targets at once.
    `interface`: what the numbers are, "position" (rad or m) or "velocity" (rad/s or m/s).
    """

    topic: str
    type: str
    joints: tuple[str, ...]
    handover: str = "point"
    max_handover: float = 0.0
    interface: str = "position"
    names: tuple[str, ...] = ()

    def named(self, joints: Iterable[str]) -> tuple[str, ...]:
        """Return what the message calls some of `joints`."""
        names = dict(zip(self.joints, self.names or self.joints, strict=True))
        return tuple(names[joint] for joint in joints)


@dataclass(frozen=True, slots=True)
class SafetyGroup:
    """What happens to some joints when the gate closes.

    `action` is "hold" (bring the joints to rest, then silence) or "release" (silence at once). Of joints that are
    commanded by velocity it may be "zero", which is what "hold" means there.
    `timeout` in seconds: a hold that lasts longer is an error; None: it may last.
    """

    joints: tuple[str, ...]
    action: str
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Action:
    """What a policy moves.

    Attributes:
        joints: as the robot's command names them.
        rate: control ticks a second.
        mode: "delta" (relative to the joints of the observation) or "absolute".
        limits: in the robot's units.
        start_tolerance: of each joint, rad or m; bounds how far the first action of an epoch may lie from it. Of
            velocities: rad/s or m/s, from standing still.
        threshold: an inference starts when this many rows or fewer are left.
        commands: each joint is in one.
        safety: each joint is in one group.
        strategy: "sync" finishes a chunk, then infers; "async" infers ahead; "rtc" does so with real-time chunking.
        outputs: [first, behind the last) of the policy's outputs; None: all.
        conversions: from ROS to the policy, in the order of `joints`; as the state's.
    """

    joints: tuple[str, ...]
    rate: float
    mode: str
    limits: Limits
    start_tolerance: tuple[float, ...]
    threshold: int
    commands: tuple[Command, ...]
    safety: tuple[SafetyGroup, ...]
    strategy: str = "async"
    outputs: tuple[int, int] | None = None
    conversions: tuple[Conversion, ...] = ()

    @property
    def period(self) -> int:
        """Nanoseconds between two control ticks."""
        return round(1e9 / self.rate)

    @property
    def interface(self) -> str:
        """What commands are: "position" or "velocity"."""
        return self.commands[0].interface

    @property
    def max_handover(self) -> float:
        """Seconds of targets that are handed over at once at most; 0: one point."""
        return self.commands[0].max_handover


def read_action(section: Section, observation: Observation) -> Action:
    """Check the section `action`; what it commands must be among what is observed."""
    joints = _joints(section.take("joints"), observation)
    rate = section.take("rate").as_number(above=0.0)
    commands = _commands(section.take("command"), joints)
    interface = commands[0].interface
    conversions = tuple(observation.conversion(joint) for joint in joints)
    if interface == "velocity":
        conversions = tuple(replace(conversion, offset=0.0) for conversion in conversions)
    action = Action(
        joints=joints,
        rate=rate,
        mode=_mode(section.take("mode"), interface),
        limits=_limits(section.take("limits").as_section(), joints, rate, interface),
        start_tolerance=_start_tolerance(section.take("start_tolerance"), joints),
        threshold=section.take("threshold").as_count(least=0),
        commands=commands,
        safety=_safety(section.take("safety"), joints, commands),
        strategy=choice_of(section.take_if_given("strategy"), STRATEGIES, "async"),
        outputs=_outputs(section.take_if_given("outputs"), joints),
        conversions=conversions,
    )
    section.end()
    return action


def _joints(listed: Value, observation: Observation) -> tuple[str, ...]:
    joints = names_of(listed)
    measured = [name for source in observation.joint_sources for name in source.names]
    unseen = [name for name in joints if name not in measured]
    if unseen:
        listed.refuse(
            f"{quoted(unseen)} is commanded but not in observation.state.joints; a joint that is not measured "
            "cannot be held, so add it there"
        )
    return joints


def _start_tolerance(value: Value, joints: tuple[str, ...]) -> tuple[float, ...]:
    """Return that of each joint; one number is that of all."""
    if value.is_text:
        return (value.as_number(above=0.0),) * len(joints)
    return tuple(each.as_number(above=0.0) for each in _for_each_joint(value, joints))


def _outputs(value: Value | None, joints: tuple[str, ...]) -> tuple[int, int] | None:
    if value is None:
        return None
    numbers = value.as_list(lambda item: item.as_count(least=0))
    if len(numbers) != 2 or numbers[1] - numbers[0] != len(joints):
        value.refuse(
            f"{list(numbers)} is no slice of {len(joints)} outputs, one for each of action.joints; write "
            "[first, behind the last]"
        )
    return numbers[0], numbers[1]


def _mode(value: Value, interface: str) -> str:
    mode = value.as_choice(ACTION_MODES)
    if mode == "delta" and interface == "velocity":
        value.refuse("delta is relative to the measured positions, and the commands are velocities; use absolute")
    return mode


def _commands(value: Value, joints: tuple[str, ...]) -> tuple[Command, ...]:
    if not value.is_list:
        section = value.as_section()
        given = section.take_if_given("joints")
        if given is None:
            return (_command(section, joints, ()),)
        names, messages = _joint_names(given, joints)
        covered(given, (names,), joints, "command", "say where it is commanded")
        return (_command(section, names, messages),)
    commands = value.as_list(lambda item: _command_of_some(item.as_section(), joints))
    covered(value, (command.joints for command in commands), joints, "command", "say where it is commanded")
    for what in ("topic", "interface", "handover", "max_handover"):
        found = [getattr(command, what) for command in commands]
        if what == "topic" and len(set(found)) < len(found):
            value.refuse(f"{quoted(sorted({name for name in found if found.count(name) > 1}))} is given twice")
        if what != "topic" and len(set(found)) > 1:
            value.refuse(f"all commands go out in the same tick; give them the same {what}, not {found}")
    return commands


def _command_of_some(section: Section, joints: tuple[str, ...]) -> Command:
    return _command(section, *_joint_names(section.take("joints"), joints))


def _joint_names(value: Value, joints: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return some of `joints`, and what the message calls them; no names where that is the same."""
    names, messages = renamed_of(value)
    among(value, names, joints)
    return names, messages if messages != names else ()


def _command(section: Section, joints: tuple[str, ...], names: tuple[str, ...]) -> Command:
    topic, kind = topic_of(section.take("topic")), section.take("type").as_choice(COMMAND_TYPES)
    given = section.take_if_given("interface")
    interface = choice_of(given, INTERFACES, "position")
    if given and interface == "velocity" and kind == TRAJECTORY:
        given.refuse(f"{kind} is a way from position to position; send velocities as {COMMAND_TYPES[0]}")
    value = section.take_if_given("handover")
    handover = choice_of(value, HANDOVERS, "point")
    longest = 0.0
    if value and handover == "trajectory":
        if kind != TRAJECTORY:
            value.refuse(f"trajectory needs the type {TRAJECTORY}; {kind} holds one point")
        longest = section.take("max_handover").as_number(above=0.0)
    section.end()
    return Command(topic, kind, joints, handover, longest, interface, names)


def _safety(value: Value, joints: tuple[str, ...], commands: tuple[Command, ...]) -> tuple[SafetyGroup, ...]:
    interface = commands[0].interface
    if value.is_text:
        return (SafetyGroup(joints, _safety_action(value, interface)),)
    section = value.as_section()
    listed = section.take("groups")
    groups = listed.as_list(lambda item: _safety_group(item.as_section(), joints, interface))
    section.end()
    covered(listed, (group.joints for group in groups), joints, "group", "say what happens to it")
    released = {joint for group in groups if group.action == "release" for joint in group.joints}
    for command in commands:
        if command.type not in NAMED_COMMAND_TYPES and released & {*command.joints} not in (set(), {*command.joints}):
            listed.refuse(
                f"a command of {command.type} holds every joint, so that some cannot be released while others are "
                f"held; release all of {command.topic} or none, or use {NAMED_COMMAND_TYPES[0]}"
            )
    return groups


def _safety_group(section: Section, joints: tuple[str, ...], interface: str) -> SafetyGroup:
    names = some_of(section.take("joints"), joints)
    action = _safety_action(section.take("action"), interface)
    value = section.take_if_given("timeout")
    if value and action != "hold":
        value.refuse(f"a {action} has no end; only a hold can last too long")
    section.end()
    return SafetyGroup(names, action, value.as_number(above=0.0) if value else None)


def _safety_action(value: Value, interface: str) -> str:
    action = value.as_choice(SAFETY_ACTIONS)
    if action == "zero" and interface == "position":
        value.refuse(
            "'zero' stops a joint that is commanded by velocity; these are commanded by position, and zero is a place "
            "to travel to. Use hold or release"
        )
    return action


def _limits(section: Section, joints: tuple[str, ...], rate: float, interface: str) -> Limits:
    ranges = [range_of(value) for value in _for_each_joint(section.take("position"), joints)]
    moves = interface == "velocity"
    velocity = section.take("velocity") if moves else section.take_if_given("velocity")
    step = section.take_if_given("step") if velocity else section.take("step")
    if moves and step:
        step.refuse("the commands are velocities; bound them by limits.velocity, and their change by acceleration")
    bounds = []
    if step:
        bounds.append([value.as_number(above=0.0) for value in _for_each_joint(step, joints)])
    if velocity:
        bounds.append([value.as_number(above=0.0) / rate for value in _for_each_joint(velocity, joints)])
    slowing = section.take_if_given("acceleration")
    acceleration = None
    if slowing:
        acceleration = tuple(value.as_number(above=0.0) / rate**2 for value in _for_each_joint(slowing, joints))
    lag = section.take_if_given("following")
    section.end()
    low, high = zip(*ranges, strict=True)
    steps = tuple(min(steps) for steps in zip(*bounds, strict=True))
    return Limits(low, high, steps, acceleration, _following(lag, joints, steps, interface) if lag else None)


def _following(value: Value, joints: tuple[str, ...], steps: tuple[float, ...], interface: str) -> tuple[float, ...]:
    if interface == "velocity":
        value.refuse("the commands are velocities, and where the joints are does not follow from one; take it out")
    section = value.as_section()
    among(section, section.names, joints)
    found = []
    for joint, step in zip(joints, steps, strict=True):
        lag = section.take_if_given(joint)
        found.append(lag.as_number(above=0.0) if lag else math.inf)
        if lag and found[-1] < step:
            lag.refuse(
                f"{found[-1]:g} is less than the {step:g} that a tick may move the joint; it lags by more than that"
            )
    return tuple(found)


def _for_each_joint(value: Value, joints: tuple[str, ...]) -> list[Value]:
    section = value.as_section()
    unknown = [name for name in section.names if name not in joints]
    if unknown:
        section.take(unknown[0]).refuse(f"'{unknown[0]}' is not in action.joints ({', '.join(joints)})")
    missing = [name for name in joints if name not in section.names]
    if missing:
        section.refuse(f"{quoted(missing)} of action.joints is missing; every commanded joint needs one")
    return [section.take(name) for name in joints]
