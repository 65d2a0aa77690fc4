# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The contract between a policy and a robot: which topics are observed, which joints are commanded, and the limits."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from flashrt_ros.policy.yaml_reader import Section, Value, read_yaml

IMAGE_TYPES = ("sensor_msgs/msg/Image",)
STATE_TYPES = ("sensor_msgs/msg/JointState",)
COMMAND_TYPES = (
    "sensor_msgs/msg/JointState",
    "std_msgs/msg/Float64MultiArray",
    "trajectory_msgs/msg/JointTrajectory",
)
STAMPED_COMMAND_TYPES = ("sensor_msgs/msg/JointState", "trajectory_msgs/msg/JointTrajectory")
QOS_NAMES = ("sensor_data", "reliable")
ACTION_MODES = ("delta", "absolute")
SAFETY_ACTIONS = ("hold",)
_TOPIC = re.compile(r"(~/|/)?[A-Za-z_][A-Za-z0-9_]*(/[A-Za-z_][A-Za-z0-9_]*)*")


@dataclass(frozen=True, slots=True)
class ImageSource:
    """One camera. `max_age` in seconds: an older image makes no observation."""

    key: str
    topic: str
    type: str
    qos: str
    max_age: float


@dataclass(frozen=True, slots=True)
class StateSource:
    """The measured joints, selected by name from a message that may hold more. `max_age` in seconds."""

    topic: str
    type: str
    qos: str
    joints: tuple[str, ...]
    max_age: float


@dataclass(frozen=True, slots=True)
class Observation:
    """What a policy sees."""

    images: tuple[ImageSource, ...]
    state: StateSource

    @property
    def max_age(self) -> float:
        """Seconds that the oldest part of an observation may be old when it is made."""
        return max(self.state.max_age, *(image.max_age for image in self.images))


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of each commanded joint, in the order of `Action.joints`: rad or m, and rad or m a control tick."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    step: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """Where commands go."""

    topic: str
    type: str


@dataclass(frozen=True, slots=True)
class Action:
    """What a policy moves.

    `rate` is in control ticks a second. `start_tolerance` (rad or m) bounds how far the first action of an epoch may
    lie from the measured joints. An inference starts when `threshold` rows or fewer are left.
    """

    joints: tuple[str, ...]
    rate: float
    mode: str
    limits: Limits
    start_tolerance: float
    threshold: int
    command: Command
    safety: str

    @property
    def period(self) -> int:
        """Nanoseconds between two control ticks."""
        return round(1e9 / self.rate)


@dataclass(frozen=True, slots=True)
class Lockstep:
    """Simulated time advances by commands; a chunk applies exactly `apply_after` ticks after its observation."""

    apply_after: int


@dataclass(frozen=True, slots=True)
class Contract:
    """A contract file, checked. `heartbeat_timeout` in seconds of steady time; `lockstep` is None on a real robot."""

    file: Path = field(compare=False)
    observation: Observation
    action: Action
    heartbeat_timeout: float
    lockstep: Lockstep | None

    def fingerprint(self) -> str:
        """Return a SHA-256 of everything that the file says, independent of its layout and place."""
        said = asdict(self)
        del said["file"]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def load_contract(path: str | Path) -> Contract:
    """Read and check a contract. Raises BAD_CONTRACT with file, line, key, value and what to do."""
    root = read_yaml(path)
    observation = _observation(root.take("observation").as_section())
    action = _action(root.take("action").as_section(), observation.state)
    contract = Contract(
        file=root.file,
        observation=observation,
        action=action,
        heartbeat_timeout=root.take("heartbeat_timeout").as_number(above=0.0),
        lockstep=_lockstep(root.take_if_given("lockstep"), action.command),
    )
    root.end()
    return contract


def _observation(section: Section) -> Observation:
    images = section.take("images").as_section()
    sources = tuple(_image(key, images.take(key).as_section()) for key in images.names)
    if not sources:
        images.refuse("no camera is named; name at least one")
    state = _state(section.take("state").as_section())
    section.end()
    return Observation(sources, state)


def _image(key: str, section: Section) -> ImageSource:
    source = ImageSource(
        key=key,
        topic=_topic(section.take("topic")),
        type=section.take("type").as_choice(IMAGE_TYPES),
        qos=section.take("qos").as_choice(QOS_NAMES),
        max_age=section.take("max_age").as_number(above=0.0),
    )
    section.end()
    return source


def _state(section: Section) -> StateSource:
    qos = section.take_if_given("qos")
    source = StateSource(
        topic=_topic(section.take("topic")),
        type=section.take("type").as_choice(STATE_TYPES),
        qos=qos.as_choice(QOS_NAMES) if qos else "reliable",
        joints=_joints(section.take("joints")),
        max_age=section.take("max_age").as_number(above=0.0),
    )
    section.end()
    return source


def _action(section: Section, state: StateSource) -> Action:
    listed = section.take("joints")
    joints = _joints(listed)
    unseen = [name for name in joints if name not in state.joints]
    if unseen:
        listed.refuse(
            f"{_quoted(unseen)} is commanded but not in observation.state.joints; a joint that is not measured "
            "cannot be held, so add it there"
        )
    action = Action(
        joints=joints,
        rate=section.take("rate").as_number(above=0.0),
        mode=section.take("mode").as_choice(ACTION_MODES),
        limits=_limits(section.take("limits").as_section(), joints),
        start_tolerance=section.take("start_tolerance").as_number(above=0.0),
        threshold=section.take("threshold").as_count(least=0),
        command=_command(section.take("command").as_section()),
        safety=section.take("safety").as_choice(SAFETY_ACTIONS),
    )
    section.end()
    return action


def _command(section: Section) -> Command:
    command = Command(_topic(section.take("topic")), section.take("type").as_choice(COMMAND_TYPES))
    section.end()
    return command


def _limits(section: Section, joints: tuple[str, ...]) -> Limits:
    ranges = [_range(value) for value in _for_each_joint(section.take("position").as_section(), joints)]
    steps = [value.as_number(above=0.0) for value in _for_each_joint(section.take("step").as_section(), joints)]
    section.end()
    return Limits(tuple(low for low, _ in ranges), tuple(high for _, high in ranges), tuple(steps))


def _for_each_joint(section: Section, joints: tuple[str, ...]) -> list[Value]:
    unknown = [name for name in section.names if name not in joints]
    if unknown:
        section.take(unknown[0]).refuse(f"'{unknown[0]}' is not in action.joints ({', '.join(joints)})")
    missing = [name for name in joints if name not in section.names]
    if missing:
        section.refuse(f"{_quoted(missing)} of action.joints is missing; every commanded joint needs a limit")
    return [section.take(name) for name in joints]


def _range(value: Value) -> tuple[float, float]:
    numbers = value.as_list(lambda item: item.as_number())
    if len(numbers) != 2:
        value.refuse(f"expected [low, high], found {len(numbers)} numbers")
    low, high = numbers
    if low >= high:
        value.refuse(f"low {low:g} is not below high {high:g}; write [low, high]")
    return low, high


def _lockstep(value: Value | None, command: Command) -> Lockstep | None:
    if value is None:
        return None
    if command.type not in STAMPED_COMMAND_TYPES:
        value.refuse(f"needs commands with a stamp, and {command.type} has none; use {STAMPED_COMMAND_TYPES[0]}")
    section = value.as_section()
    lockstep = Lockstep(section.take("apply_after").as_count(least=1))
    section.end()
    return lockstep


def _topic(value: Value) -> str:
    name = value.as_text()
    if not _TOPIC.fullmatch(name):
        value.refuse(f"'{name}' is no topic name; use letters, digits, '_' and '/', as in camera/front/image_raw")
    return name


def _joints(value: Value) -> tuple[str, ...]:
    names = value.as_list(lambda item: item.as_text())
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        value.refuse(f"{_quoted(twice)} is named twice")
    return names


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
