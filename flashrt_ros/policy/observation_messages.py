# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Measured numbers, selected by name: of messages as ROS has them, or as a bag's reader makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


class JointMessage(Protocol):
    """What sensor_msgs/msg/JointState has."""

    name: Sequence[str]
    position: Any
    velocity: Any
    effort: Any


class ArrayMessage(Protocol):
    """What std_msgs/msg/Float64MultiArray has."""

    data: Any


_PLURAL = {"position": "positions", "velocity": "velocities", "effort": "efforts"}


def joints_of(state: JointMessage, joints: Sequence[str], field: str = "position") -> NDArray[np.float64]:
    """Return one field of `joints` in their order, selected by name; other joints may be there too.

    Raises:
        FlashrtError: BAD_OBSERVATION if one is missing, named twice, or not finite; never a shorter vector.
    """
    names = list(state.name)
    values = getattr(state, field)
    if len(values) != len(names):
        raise _bad(f"{len(values)} {_PLURAL[field]} for {len(names)} joint names")
    missing = [joint for joint in joints if joint not in names]
    if missing:
        raise _bad(f"joint '{missing[0]}' is missing; the message names {', '.join(names) or 'none'}")
    twice = [joint for joint in joints if names.count(joint) > 1]
    if twice:
        raise _bad(f"joint '{twice[0]}' is named twice")
    return _finite("joint", joints, [values[names.index(joint)] for joint in joints])


def entries_of(array: ArrayMessage, names: Sequence[str], wanted: Sequence[str]) -> NDArray[np.float64]:
    """Return the entries `wanted` of an array whose entries have `names`; errors as `joints_of`."""
    if len(array.data) != len(names):
        raise _bad(f"{len(array.data)} entries, the contract names {len(names)}: {', '.join(names)}")
    return _finite("entry", wanted, [array.data[list(names).index(name)] for name in wanted])


def fields_of(message: Any, fields: Sequence[str]) -> NDArray[np.float64]:
    """Return `fields` (as "position.x") of a pose or a wrench, stamped or not; BAD_OBSERVATION for one not finite."""
    inner = getattr(message, "pose", None) or getattr(message, "wrench", None) or message
    return _finite("field", fields, [_at(inner, field) for field in fields])


def _at(message: Any, field: str) -> float:
    part, _, axis = field.partition(".")
    return float(getattr(getattr(message, part), axis))


def _finite(kind: str, names: Sequence[str], values: Sequence[float]) -> NDArray[np.float64]:
    numbers = np.array(values, np.float64)
    for name, number in zip(names, numbers, strict=True):
        if not np.isfinite(number):
            raise _bad(f"{kind} '{name}' is {number}")
    return numbers


def _bad(message: str) -> FlashrtError:
    return FlashrtError(ErrorCode.BAD_OBSERVATION, message)
