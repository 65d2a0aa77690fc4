# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From the messages of a contract's sources to a checkpoint's state, matched by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.policy.contract_keys import Conversion, quoted
from flashrt_ros.policy.contract_observation import FIELDS, MULTI_ARRAY, Observation, StateSource
from flashrt_ros.policy.conversions import converted
from flashrt_ros.policy.observation_messages import entries_of, fields_of, joints_of
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


@dataclass(frozen=True, slots=True)
class StatePart:
    """What one source contributes: its numbers as the message names them, and where in the state they go."""

    source: StateSource
    joints: tuple[str, ...]
    places: tuple[int, ...]
    conversions: tuple[Conversion, ...]

    def read(self, message: Any) -> NDArray[np.float64]:
        """Return its numbers in the policy's units; BAD_OBSERVATION for a message that lacks one."""
        source = self.source
        if source.type in FIELDS:
            numbers = fields_of(message, self.joints)
        elif source.type == MULTI_ARRAY:
            numbers = entries_of(message, source.joints, self.joints)
        else:
            numbers = joints_of(message, self.joints, source.field)
        return converted(numbers, self.conversions)


class StateLayout:
    """Which number of which source stands where in a state."""

    def __init__(self, observed: Observation, names: Sequence[str]) -> None:
        """`names`: of the state's numbers, in the checkpoint's order; BAD_CONTRACT where one is not observed."""
        unknown = [name for name in names if name not in observed.names]
        if unknown:
            raise FlashrtError(
                ErrorCode.BAD_CONTRACT,
                f"the checkpoint's state has {quoted(unknown)}; observation.state is {', '.join(observed.names)}",
            )
        parts = (_part(source, list(names)) for source in observed.state)
        self.parts = {part.source.key: part for part in parts if part.places}
        self._size = len(names)

    @property
    def places(self) -> dict[str, tuple[int, ...]]:
        """Of each source's numbers in the state."""
        return {key: part.places for key, part in self.parts.items()}

    def join(self, values: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return the state, float64 [state_dim], of what each source's part has read."""
        state = np.full(self._size, np.nan)
        for key, part in self.parts.items():
            state[list(part.places)] = values[key]
        return state


def _part(source: StateSource, names: list[str]) -> StatePart:
    wanted = [(names.index(name), index) for index, name in enumerate(source.names) if name in names]
    indices = [index for _, index in sorted(wanted)]
    return StatePart(
        source,
        tuple(source.joints[index] for index in indices),
        tuple(place for place, _ in sorted(wanted)),
        tuple(source.conversions[index] for index in indices),
    )
