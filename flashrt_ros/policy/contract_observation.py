# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The observed half of a contract: cameras, measured state, and the instruction where it comes by topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flashrt_ros.policy.contract_keys import (
    QOS_NAMES,
    Conversion,
    choice_of,
    conversions_of,
    names_of,
    quoted,
    range_of,
    renamed_of,
    topic_of,
)
from flashrt_ros.policy.yaml_reader import Section, Value

IMAGE = "sensor_msgs/msg/Image"
COMPRESSED_IMAGE = "sensor_msgs/msg/CompressedImage"
JOINT_STATE = "sensor_msgs/msg/JointState"
MULTI_ARRAY = "std_msgs/msg/Float64MultiArray"
STRING = "std_msgs/msg/String"
IMAGE_TYPES = (IMAGE, COMPRESSED_IMAGE)
_POSE = tuple(f"position.{axis}" for axis in "xyz") + tuple(f"orientation.{axis}" for axis in "xyzw")
_WRENCH = tuple(f"{part}.{axis}" for part in ("force", "torque") for axis in "xyz")
FIELDS = {
    "geometry_msgs/msg/Pose": _POSE,
    "geometry_msgs/msg/PoseStamped": _POSE,
    "geometry_msgs/msg/Wrench": _WRENCH,
    "geometry_msgs/msg/WrenchStamped": _WRENCH,
}
"""Types whose numbers have names of their own, and these names."""
STATE_TYPES = (JOINT_STATE, MULTI_ARRAY, *FIELDS)
STAMPED_TYPES = (*IMAGE_TYPES, JOINT_STATE, "geometry_msgs/msg/PoseStamped", "geometry_msgs/msg/WrenchStamped")
"""Types with a header."""
JOINT_FIELDS = ("position", "velocity", "effort")
ENCODINGS = ("rgb8", "16UC1")
ALIGNMENTS = ("hold", "asof", "drop")
STAMPS = ("header", "receive")
STATE = "state"


@dataclass(frozen=True, slots=True)
class ImageSource:
    """One camera.

    Attributes:
        key: the checkpoint's name of the view.
        max_age: s; an older image makes no observation.
        encoding: "rgb8" for colour in any encoding, "16UC1" for depth.
        align: "hold" takes the newest; "asof" the newest that is not newer than the oldest part; "drop" one once.
        stamp: "header", or "receive" for a driver without a synchronised clock.
        depth_range: m, what becomes 0 and 255 of a depth image; None for colour.
    """

    key: str
    topic: str
    type: str
    qos: str
    max_age: float
    encoding: str = "rgb8"
    align: str = "hold"
    stamp: str = "header"
    depth_range: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class StateSource:
    """Measured numbers, selected by name from a message that may hold more.

    Attributes:
        key: "state", or "state[1]" for the second of several.
        joints: as the message names them: joints, a multi-array's entries, or fields as "position.x".
        max_age: s; an older message makes no observation.
        names: as the checkpoint names them, and the action where they are measured joints; in the order of `joints`.
        field: of a JointState.
        align: as for an image.
        stamp: as for an image.
        conversions: from ROS to the policy, in the order of `joints`.
    """

    key: str
    topic: str
    type: str
    qos: str
    joints: tuple[str, ...]
    max_age: float
    names: tuple[str, ...]
    field: str = "position"
    align: str = "hold"
    stamp: str = "header"
    conversions: tuple[Conversion, ...] = ()

    @property
    def measures_joints(self) -> bool:
        """Whether these are positions of joints, as a command sets them."""
        return self.type not in FIELDS and self.field == "position"


@dataclass(frozen=True, slots=True)
class TextSource:
    """The instruction by topic."""

    topic: str
    type: str
    qos: str


@dataclass(frozen=True, slots=True)
class Observation:
    """What a policy sees. The state is all sources one behind the other."""

    images: tuple[ImageSource, ...]
    state: tuple[StateSource, ...]
    text: TextSource | None = None

    @property
    def sources(self) -> tuple[ImageSource | StateSource, ...]:
        """All parts of an observation, the cameras first."""
        return (*self.images, *self.state)

    @property
    def views(self) -> tuple[str, ...]:
        """Of the cameras, as the checkpoint has them."""
        return tuple(image.key for image in self.images)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the state's numbers, as the checkpoint has them."""
        return tuple(name for source in self.state for name in source.names)

    @property
    def max_age(self) -> float:
        """Seconds that the oldest part of an observation may be old when it is made."""
        return max(source.max_age for source in self.sources)

    @property
    def joint_sources(self) -> tuple[StateSource, ...]:
        """Those that measure the positions of joints."""
        return tuple(source for source in self.state if source.measures_joints)

    def sources_of(self, joints: Iterable[str]) -> tuple[StateSource, ...]:
        """Those that measure the position of one of `joints`."""
        wanted = set(joints)
        return tuple(source for source in self.joint_sources if wanted.intersection(source.names))

    def conversion(self, joint: str) -> Conversion:
        """Of a measured joint."""
        found = {
            name: conversion
            for source in self.joint_sources
            for name, conversion in zip(source.names, source.conversions, strict=True)
        }
        return found[joint]


def read_observation(section: Section) -> Observation:
    """Check the section `observation`."""
    images = section.take("images").as_section()
    sources = tuple(_image(key, images.take(key)) for key in images.names)
    if not sources:
        images.refuse("no camera is named; name at least one")
    state = _state(section.take("state"))
    text = section.take_if_given("text")
    section.end()
    return Observation(sources, state, _text(text.as_section()) if text else None)


def _image(key: str, value: Value) -> ImageSource:
    if key.partition("[")[0] == STATE:
        value.refuse(f"'{key}' is what the measured state is called; name the camera otherwise")
    section = value.as_section()
    encoding = choice_of(section.take_if_given("encoding"), ENCODINGS, "rgb8")
    source = ImageSource(
        key=key,
        topic=topic_of(section.take("topic")),
        type=section.take("type").as_choice(IMAGE_TYPES),
        qos=section.take("qos").as_choice(QOS_NAMES),
        max_age=section.take("max_age").as_number(above=0.0),
        encoding=encoding,
        align=choice_of(section.take_if_given("align"), ALIGNMENTS, "hold"),
        stamp=choice_of(section.take_if_given("stamp"), STAMPS, "header"),
        depth_range=_depth_range(section) if encoding == "16UC1" else None,
    )
    section.end()
    return source


def _depth_range(section: Section) -> tuple[float, float]:
    value = section.take("depth_range")
    near, far = range_of(value)
    if near < 0.0:
        value.refuse(f"{near:g} is behind the camera; use [nearest, farthest] in m")
    return near, far


def _state(value: Value) -> tuple[StateSource, ...]:
    if not value.is_list:
        return (_state_source(STATE, value),)
    listed = value.as_list(lambda item: item)
    sources = tuple(_state_source(f"{STATE}[{index}]", item) for index, item in enumerate(listed))
    seen: set[str] = set()
    for source, item in zip(sources, listed, strict=True):
        again = [name for name in source.names if name in seen]
        if again:
            item.refuse(f"{quoted(again)} is in a source before this one too; name each number once")
        seen |= set(source.names)
    return sources


def _state_source(key: str, value: Value) -> StateSource:
    section = value.as_section()
    kind = section.take("type").as_choice(STATE_TYPES)
    if kind in FIELDS:
        names, joints = _fields(section.take("fields"), FIELDS[kind])
    else:
        names, joints = _joints(section.take("joints"), kind)
    own, field = names, "position"
    if kind == JOINT_STATE:
        field = choice_of(section.take_if_given("field"), JOINT_FIELDS, field)
        if field != "position":
            names = tuple(f"{name}.{field}" for name in names)
    source = StateSource(
        key=key,
        topic=topic_of(section.take("topic")),
        type=kind,
        qos=choice_of(section.take_if_given("qos"), QOS_NAMES, "reliable"),
        joints=joints,
        max_age=section.take("max_age").as_number(above=0.0),
        names=names,
        field=field,
        align=choice_of(section.take_if_given("align"), ALIGNMENTS, "hold"),
        stamp=_stamp(section, kind),
        conversions=conversions_of(section.take_if_given("convert"), own),
    )
    section.end()
    return source


def _joints(value: Value, kind: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return names, and the messages' names for them."""
    if kind == JOINT_STATE:
        return renamed_of(value)
    names = names_of(value)
    return names, names


def _fields(value: Value, known: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return names and fields of a section `name: field`."""
    section = value.as_section()
    names = section.names
    if not names:
        section.refuse(f"no field is named; write 'name: field', of {', '.join(known)}")
    return names, tuple(section.take(name).as_choice(known) for name in names)


def _stamp(section: Section, kind: str) -> str:
    value = section.take_if_given("stamp")
    if kind in STAMPED_TYPES:
        return choice_of(value, STAMPS, "header")
    if value and value.as_choice(STAMPS) == "header":
        value.refuse(f"{kind} has no header; use receive")
    return "receive"


def _text(section: Section) -> TextSource:
    source = TextSource(
        topic=topic_of(section.take("topic")),
        type=section.take("type").as_choice((STRING,)),
        qos=choice_of(section.take_if_given("qos"), QOS_NAMES, "reliable"),
    )
    section.end()
    return source
