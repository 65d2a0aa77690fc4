# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Telling how far a long work is."""

from __future__ import annotations

from collections.abc import Callable

Tell = Callable[[float], None]
"""Told now and then which part of a work is done, from 0 to 1; what it raises ends the work."""


def tell_nobody(part: float) -> None:
    """A `Tell` for those who do not ask."""


def part_of(tell: Tell, begin: float, end: float) -> Tell:
    """A `Tell` for the part of a work that goes from `begin` to `end`."""
    return lambda part: tell(begin + part * (end - begin))
