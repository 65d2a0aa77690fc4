# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Nanoseconds to and from ROS messages."""

from __future__ import annotations

from builtin_interfaces.msg import Duration, Time

_SECOND = 1_000_000_000


def from_nanoseconds(nanoseconds: int) -> Time:
    """Return a time message."""
    seconds, rest = divmod(nanoseconds, _SECOND)
    return Time(sec=seconds, nanosec=rest)


def duration_of(nanoseconds: int) -> Duration:
    """Return a duration message."""
    seconds, rest = divmod(nanoseconds, _SECOND)
    return Duration(sec=seconds, nanosec=rest)


def to_nanoseconds(message: Time | Duration) -> int:
    """Return the nanoseconds of a time or a duration."""
    return int(message.sec) * _SECOND + int(message.nanosec)
