# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a bag holds of a policy and its robot, found by a contract's topics and by the types of ours."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flashrt_ros.policy.contract import Contract
from flashrt_ros.policy.contract_action import Command
from flashrt_ros.policy.replay_bag import Bag
from flashrt_ros.policy.replay_record import Input, Record
from flashrt_ros.policy.replay_types import PACKAGE
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

_OURS = ("BoundaryRecord", "ActionChunk", "Executed", "Gate", "PolicyState")
_CLOCK = "rosgraph_msgs/msg/Clock"


@dataclass(frozen=True, slots=True)
class Timed:
    """A message and when it was recorded, ns."""

    time: int
    message: Any


@dataclass(slots=True)
class Part:
    """An input: when the messages of each stamp were recorded (ns), the stamps in the order of recording.

    `received`: its stamp is the time of its receipt, for which the time of recording stands.
    """

    key: str
    topic: str
    received: bool = False
    times: dict[int, list[int]] = field(default_factory=dict)
    went_back: int = 0


@dataclass(slots=True)
class Recording:
    """A bag, read but for its images.

    Attributes:
        parts: the contract's inputs; the joints are under "state".
        records: the log of boundaries, in its order; empty: the bag has none.
        times: when each of them was recorded, ns.
        other: messages of our other types and of the clock, by the last part of their type's name.
        commands: messages of the contract's command topics, each with what it commands.
        troubles: what is wrong with the bag, where it can be used all the same.
    """

    bag: Bag
    contract: Contract
    parts: dict[str, Part]
    records: list[Record]
    times: list[int]
    other: dict[str, list[Timed]]
    commands: list[tuple[Command, Any]]
    troubles: list[str]


def read_recording(bag: Bag, contract: Contract) -> Recording:
    """Read a bag.

    Raises:
        FlashrtError: BAD_CONTRACT, an observed topic is not there or is of another type; DAMAGED.
    """
    parts = _parts(bag, contract)
    topics = {part.topic: [other for other in parts.values() if other.topic == part.topic] for part in parts.values()}
    commands = {topic: command for command in contract.action.commands if (topic := _find(bag, command.topic))}
    ours = {topic: name for topic, kind in bag.types.items() if (name := _our_name(kind))}
    found = Recording(
        bag, contract, parts, [], [], {name: [] for name in (*_OURS[1:], "Clock")}, [], list(bag.troubles)
    )
    for topic, time, raw in bag.messages([*topics, *ours, *commands]):
        if topic in topics:
            for part in topics[topic]:
                _note_stamp(part, time, raw)
        elif topic in commands:
            found.commands.append((commands[topic], bag.decode(topic, raw)))
        elif ours[topic] == _OURS[0]:
            found.records.append(record_of(bag.decode(topic, raw)))
            found.times.append(time)
        else:
            found.other[ours[topic]].append(Timed(time, bag.decode(topic, raw)))
    _check_order(found)
    return found


def stamp_of(message: Any) -> int:
    """Nanoseconds of a time or duration message."""
    return int(message.sec) * 1_000_000_000 + int(message.nanosec)


def header_stamp(raw: bytes) -> int | None:
    """The stamp (ns) of a serialised message that begins with a header; None: it is too short to have one."""
    if len(raw) < 12:
        return None
    seconds, rest = struct.unpack_from("<iI" if raw[1] & 1 else ">iI", raw, 4)
    return int(seconds) * 1_000_000_000 + int(rest)


def record_of(message: Any) -> Record:
    """A BoundaryRecord message as a record; a field that an older bag lacks is empty."""
    plain = {
        name: getattr(message, name) for name in Record.__slots__ if name not in _CONVERTED and hasattr(message, name)
    }
    inputs = zip(message.input_keys, message.input_stamps, message.input_sha256, strict=True)
    return Record(
        **plain,
        stamp=stamp_of(message.stamp),
        delay=stamp_of(message.delay),
        inputs=tuple(Input(key, stamp_of(stamp), digest) for key, stamp, digest in inputs),
    )


_CONVERTED = ("stamp", "delay", "inputs")


def actions_of(chunk: Any) -> np.ndarray:
    """The rows of an ActionChunk message, float64 [horizon, joints]."""
    return np.array(chunk.data, np.float64).reshape(chunk.horizon, -1)


def _our_name(kind: str) -> str:
    package, _, name = kind.rpartition("/msg/")
    if kind == _CLOCK:
        return "Clock"
    return name if package == PACKAGE and name in _OURS else ""


def _parts(bag: Bag, contract: Contract) -> dict[str, Part]:
    parts, lacking = {}, []
    for source in contract.observation.sources:
        key, name = source.key, _find(bag, source.topic)
        if not name:
            lacking.append(f"{key}: there is no topic {source.topic}")
        elif bag.types[name] != source.type:
            lacking.append(f"{key}: {name} is of type {bag.types[name]}, the contract says {source.type}")
        else:
            parts[key] = Part(key, name, source.stamp == "receive")
    if lacking:
        raise FlashrtError(
            ErrorCode.BAD_CONTRACT,
            f"{bag.path} does not hold what {contract.file} observes: {'; '.join(lacking)}. "
            f"It has {_listed(bag.types)}",
        )
    return parts


def _find(bag: Bag, topic: str) -> str:
    """The bag's topic that a contract means, whatever the namespace; empty: none, or not one alone."""
    name = topic.removeprefix("~").removeprefix("/")
    if f"/{name}" in bag.types:
        return f"/{name}"
    ends = [held for held in bag.types if held.endswith(f"/{name}")]
    return ends[0] if len(ends) == 1 else ""


def _note_stamp(part: Part, time: int, raw: bytes) -> None:
    stamp = time if part.received else header_stamp(raw)
    if stamp is None:
        raise FlashrtError(ErrorCode.DAMAGED, f"a message of {part.topic} has {len(raw)} bytes, and no header")
    newest = next(reversed(part.times), stamp)
    part.went_back += stamp < newest
    part.times.setdefault(stamp, []).append(time)


def _check_order(found: Recording) -> None:
    for part in found.parts.values():
        if part.went_back:
            found.troubles.append(
                f"{part.topic}: {part.went_back} stamps are older than the one before; they are taken by their stamps"
            )
        if not part.times:
            found.troubles.append(f"{part.topic}: the bag has no message of it")
    gaps = [a for a, b in itertools.pairwise(record.sequence for record in found.records) if b not in (a + 1, 1)]
    if gaps:
        found.troubles.append(f"{len(gaps)} records of the log of boundaries are missing, the first behind {gaps[0]}")


def _listed(names: Iterable[str] | Sequence[str]) -> str:
    return ", ".join(sorted(names)) or "no topics"
