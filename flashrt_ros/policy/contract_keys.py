# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Values that several parts of a contract have in common, checked."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from flashrt_ros.policy.yaml_reader import Section, Value

QOS_NAMES = ("sensor_data", "reliable")
_TOPIC = re.compile(r"(~/|/)?[A-Za-z_][A-Za-z0-9_]*(/[A-Za-z_][A-Za-z0-9_]*)*")


@dataclass(frozen=True, slots=True)
class Conversion:
    """Units and sign of one value: policy = ROS * `scale` + `offset`."""

    scale: float = 1.0
    offset: float = 0.0


def topic_of(value: Value) -> str:
    """Return a topic's name."""
    name = value.as_text()
    if not _TOPIC.fullmatch(name):
        value.refuse(f"'{name}' is no topic name; use letters, digits, '_' and '/', as in camera/front/image_raw")
    return name


def choice_of(value: Value | None, choices: tuple[str, ...], default: str) -> str:
    """Return one of `choices`; the default where the key is not given."""
    return value.as_choice(choices) if value else default


def names_of(value: Value) -> tuple[str, ...]:
    """Return a list of different names."""
    names = value.as_list(lambda item: item.as_text())
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        value.refuse(f"{quoted(twice)} is named twice")
    return names


def renamed_of(value: Value) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of a list, and the messages' names for them: the same, or those of lines `name: message's`.

    The joints of two arms often have the same names, told apart by their topics alone.
    """
    if value.is_list:
        names = names_of(value)
        return names, names
    section = value.as_section()
    names = section.names
    if not names:
        section.refuse("no joint is named; write a list, or 'name: what the messages call it'")
    messages = tuple(section.take(name).as_text() for name in names)
    twice = sorted({name for name in messages if messages.count(name) > 1})
    if twice:
        section.refuse(f"{quoted(twice)} is given for two joints")
    return names, messages


def some_of(value: Value, joints: tuple[str, ...]) -> tuple[str, ...]:
    """Return a list of different names, all of `action.joints`."""
    names = names_of(value)
    among(value, names, joints)
    return names


def among(value: Value, names: tuple[str, ...], joints: tuple[str, ...]) -> None:
    """Refuse names that are not in `action.joints`."""
    unknown = [name for name in names if name not in joints]
    if unknown:
        value.refuse(f"{quoted(unknown)} is not in action.joints ({', '.join(joints)})")


def covered(value: Value, parts: Iterable[tuple[str, ...]], joints: tuple[str, ...], part: str, advice: str) -> None:
    """Refuse parts of which one joint is in two, or in none; `part`: what one is called."""
    named = [name for names in parts for name in names]
    twice = sorted({name for name in named if named.count(name) > 1})
    if twice:
        value.refuse(f"{quoted(twice)} is in two {part}s; put each joint into one")
    missing = [name for name in joints if name not in named]
    if missing:
        value.refuse(f"{quoted(missing)} of action.joints is in no {part}; {advice}")


def range_of(value: Value) -> tuple[float, float]:
    """Return [low, high], low below high."""
    numbers = value.as_list(lambda item: item.as_number())
    if len(numbers) != 2:
        value.refuse(f"expected [low, high], found {len(numbers)} numbers")
    low, high = numbers
    if low >= high:
        value.refuse(f"low {low:g} is not below high {high:g}; write [low, high]")
    return low, high


def conversions_of(value: Value | None, names: tuple[str, ...]) -> tuple[Conversion, ...]:
    """Return the conversion of each of `names`; the identity for one that the section does not name."""
    if value is None:
        return tuple(Conversion() for _ in names)
    section = value.as_section()
    unknown = [name for name in section.names if name not in names]
    if unknown:
        section.take(unknown[0]).refuse(f"'{unknown[0]}' is not in this source ({', '.join(names)})")
    return tuple(_conversion(section.take_if_given(name)) for name in names)


def quoted(names: Iterable[str]) -> str:
    """Return names for a complaint."""
    return ", ".join(f"'{name}'" for name in names)


def _conversion(value: Value | None) -> Conversion:
    if value is None:
        return Conversion()
    section = value.as_section()
    found = Conversion(_scale(section), _offset(section))
    section.end()
    return found


def _scale(section: Section) -> float:
    value = section.take_if_given("scale")
    scale = value.as_number() if value else 1.0
    if value and not scale:
        value.refuse("0 makes every measurement the same; use another number, negative to turn the sign")
    return scale


def _offset(section: Section) -> float:
    value = section.take_if_given("offset")
    return value.as_number() if value else 0.0
