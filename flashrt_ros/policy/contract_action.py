# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The commanded half of a contract: joints, limits, how chunks are executed, and what happens on trouble."""

from __future__ import annotations

from dataclasses import dataclass

from flashrt_ros.policy.contract_keys import Conversion, choice_of, names_of, quoted, range_of, topic_of
from flashrt_ros.policy.contract_observation import Observation
from flashrt_ros.policy.yaml_reader import Section, Value

TRAJECTORY = "trajectory_msgs/msg/JointTrajectory"
COMMAND_TYPES = ("sensor_msgs/msg/JointState", "std_msgs/msg/Float64MultiArray", TRAJECTORY)
STAMPED_COMMAND_TYPES = NAMED_COMMAND_TYPES = ("sensor_msgs/msg/JointState", TRAJECTORY)
ACTION_MODES = ("delta", "absolute")
STRATEGIES = ("sync", "async", "rtc")
HANDOVERS = ("point", "trajectory")
SAFETY_ACTIONS = ("hold", "release", "zero")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of each commanded joint, in the order of `Action.joints`: rad or m, and rad or m a control tick.

    `acceleration` bounds by how much the steps of a hold may differ from one tick to the next; None: by nothing.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    step: tuple[float, ...]
    acceleration: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """Where commands go.

    `handover` is "point", one target a tick, or "trajectory", up to `max_handover` seconds of targets at once.
    """

    topic: str
    type: str
    handover: str = "point"
    max_handover: float = 0.0


@dataclass(frozen=True, slots=True)
class SafetyGroup:
    """What happens to some joints when the gate closes.

    `action` is "hold" (bring the joints to rest, then silence) or "release" (silence at once).
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
        start_tolerance: rad or m; bounds how far the first action of an epoch may lie from the measured joints.
        threshold: an inference starts when this many rows or fewer are left.
        command: where commands go.
        safety: each joint is in one group.
        strategy: "sync" finishes a chunk, then infers; "async" infers ahead; "rtc" does so with real-time chunking.
        outputs: [first, behind the last) of the policy's outputs; None: all.
        conversions: from ROS to the policy, in the order of `joints`; as the state's.
    """

    joints: tuple[str, ...]
    rate: float
    mode: str
    limits: Limits
    start_tolerance: float
    threshold: int
    command: Command
    safety: tuple[SafetyGroup, ...]
    strategy: str = "async"
    outputs: tuple[int, int] | None = None
    conversions: tuple[Conversion, ...] = ()

    @property
    def period(self) -> int:
        """Nanoseconds between two control ticks."""
        return round(1e9 / self.rate)


def read_action(section: Section, observation: Observation) -> Action:
    """Check the section `action`; what it commands must be among what is observed."""
    joints = _joints(section.take("joints"), observation)
    rate = section.take("rate").as_number(above=0.0)
    command = _command(section.take("command").as_section())
    action = Action(
        joints=joints,
        rate=rate,
        mode=section.take("mode").as_choice(ACTION_MODES),
        limits=_limits(section.take("limits").as_section(), joints, rate),
        start_tolerance=section.take("start_tolerance").as_number(above=0.0),
        threshold=section.take("threshold").as_count(least=0),
        command=command,
        safety=_safety(section.take("safety"), joints, command),
        strategy=choice_of(section.take_if_given("strategy"), STRATEGIES, "async"),
        outputs=_outputs(section.take_if_given("outputs"), joints),
        conversions=tuple(observation.conversion(joint) for joint in joints),
    )
    section.end()
    return action


def _joints(listed: Value, observation: Observation) -> tuple[str, ...]:
    joints = names_of(listed)
    measured = [name for source in observation.joint_sources for name in source.joints]
    unseen = [name for name in joints if name not in measured]
    if unseen:
        listed.refuse(
            f"{quoted(unseen)} is commanded but not in observation.state.joints; a joint that is not measured "
            "cannot be held, so add it there"
        )
    return joints


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


def _command(section: Section) -> Command:
    topic, kind = topic_of(section.take("topic")), section.take("type").as_choice(COMMAND_TYPES)
    value = section.take_if_given("handover")
    handover = choice_of(value, HANDOVERS, "point")
    longest = 0.0
    if value and handover == "trajectory":
        if kind != TRAJECTORY:
            value.refuse(f"trajectory needs the type {TRAJECTORY}; {kind} holds one point")
        longest = section.take("max_handover").as_number(above=0.0)
    section.end()
    return Command(topic, kind, handover, longest)


def _safety(value: Value, joints: tuple[str, ...], command: Command) -> tuple[SafetyGroup, ...]:
    if value.is_text:
        return (SafetyGroup(joints, _safety_action(value)),)
    section = value.as_section()
    listed = section.take("groups")
    groups = listed.as_list(lambda item: _safety_group(item.as_section(), joints))
    section.end()
    named = [name for group in groups for name in group.joints]
    twice = sorted({name for name in named if named.count(name) > 1})
    if twice:
        listed.refuse(f"{quoted(twice)} is in two groups; put each joint into one")
    missing = [name for name in joints if name not in named]
    if missing:
        listed.refuse(f"{quoted(missing)} of action.joints is in no group; say what happens to it")
    if len({group.action for group in groups}) > 1 and command.type not in NAMED_COMMAND_TYPES:
        listed.refuse(
            f"a command of {command.type} holds every joint, so that some cannot be released while others are held; "
            f"give all groups the same action, or use {NAMED_COMMAND_TYPES[0]}"
        )
    return groups


def _safety_group(section: Section, joints: tuple[str, ...]) -> SafetyGroup:
    listed = section.take("joints")
    names = names_of(listed)
    unknown = [name for name in names if name not in joints]
    if unknown:
        listed.refuse(f"{quoted(unknown)} is not in action.joints ({', '.join(joints)})")
    action = _safety_action(section.take("action"))
    value = section.take_if_given("timeout")
    if value and action != "hold":
        value.refuse(f"a {action} has no end; only a hold can last too long")
    section.end()
    return SafetyGroup(names, action, value.as_number(above=0.0) if value else None)


def _safety_action(value: Value) -> str:
    action = value.as_choice(SAFETY_ACTIONS)
    if action == "zero":
        value.refuse(
            "'zero' stops a joint that is commanded by velocity or effort; these are commanded by position, and zero "
            "is a place to travel to. Use hold or release"
        )
    return action


def _limits(section: Section, joints: tuple[str, ...], rate: float) -> Limits:
    ranges = [range_of(value) for value in _for_each_joint(section.take("position"), joints)]
    velocity = section.take_if_given("velocity")
    step = section.take_if_given("step") if velocity else section.take("step")
    bounds = []
    if step:
        bounds.append([value.as_number(above=0.0) for value in _for_each_joint(step, joints)])
    if velocity:
        bounds.append([value.as_number(above=0.0) / rate for value in _for_each_joint(velocity, joints)])
    slowing = section.take_if_given("acceleration")
    acceleration = None
    if slowing:
        acceleration = tuple(value.as_number(above=0.0) / rate**2 for value in _for_each_joint(slowing, joints))
    section.end()
    low, high = zip(*ranges, strict=True)
    return Limits(low, high, tuple(min(steps) for steps in zip(*bounds, strict=True)), acceleration)


def _for_each_joint(value: Value, joints: tuple[str, ...]) -> list[Value]:
    section = value.as_section()
    unknown = [name for name in section.names if name not in joints]
    if unknown:
        section.take(unknown[0]).refuse(f"'{unknown[0]}' is not in action.joints ({', '.join(joints)})")
    missing = [name for name in joints if name not in section.names]
    if missing:
        section.refuse(f"{quoted(missing)} of action.joints is missing; every commanded joint needs a limit")
    return [section.take(name) for name in joints]
