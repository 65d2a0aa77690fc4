# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The measured joints of several topics, as if one message named them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flashrt_ros.policy.contract_observation import MULTI_ARRAY, Observation, StateSource


@dataclass(frozen=True, slots=True)
class Measured:
    """Positions by name, in the robot's units, and the stamp (ns) of the oldest."""

    names: Sequence[str]
    positions: Any
    stamp: int


class JointMerger:
    """Keeps the newest of each source; the robot's units, not the policy's, for it is the robot that is commanded."""

    def __init__(self, observed: Observation, joints: Sequence[str]) -> None:
        """`joints`: the commanded ones; each is in one of the observed sources."""
        self.sources = observed.sources_of(joints)
        self.max_age = max_age_of(self.sources)
        self._wanted = [tuple(name for name in source.names if name in joints) for source in self.sources]
        self._names = [
            dict(zip(source.joints, source.names, strict=True)) if source.joints != source.names else None
            for source in self.sources
        ]
        """Of a source whose messages call its joints otherwise: our names by theirs."""
        self._newest: list[Measured | None] = [None] * len(self.sources)

    def merge(self, index: int, message: Any, stamp: int) -> Measured | None:
        """Take a message of source `index`; returns all joints, or None until every source has been heard.

        A message that lacks one is returned as it is, for the controller to refuse and name.
        """
        source = self.sources[index]
        array = source.type == MULTI_ARRAY
        names, positions = (source.joints, message.data) if array else (message.name, message.position)
        ours = self._names[index]
        if ours is not None:
            names, positions = _renamed(names, positions, ours)
        found = Measured(names, positions, stamp)
        if len(self.sources) == 1:
            return found
        held = dict(zip(names, positions, strict=False))
        if len(names) != len(positions) or any(joint not in held for joint in self._wanted[index]):
            return found
        # A source that may be old for a shorter time than another is older by the difference in what is common to all.
        late = self.max_age - round(source.max_age * 1e9)
        mine = self._wanted[index]
        self._newest[index] = Measured(mine, [held[joint] for joint in mine], stamp - late)
        parts = [part for part in self._newest if part is not None and part.stamp <= stamp + self.max_age]
        if len(parts) < len(self.sources):
            return None
        return Measured(
            [name for part in parts for name in part.names],
            [position for part in parts for position in part.positions],
            min(part.stamp for part in parts),
        )


def _renamed(names: Sequence[str], positions: Any, ours: Mapping[str, str]) -> tuple[Sequence[str], Any]:
    """Return the joints of `ours` alone: another joint of the message may have one of our names."""
    if len(names) != len(positions):
        return [ours.get(name, name) for name in names], positions  # for the controller to refuse
    known = [(ours[name], position) for name, position in zip(names, positions, strict=True) if name in ours]
    return [name for name, _ in known], [position for _, position in known]


def max_age_of(sources: Sequence[StateSource]) -> int:
    """The longest time (ns) that one of the sources may be old."""
    return round(max(source.max_age for source in sources) * 1e9)
