# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Whole numbers as inputs of an episode: what capsules, logs and messages can hold."""

from __future__ import annotations

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


def is_whole(value: object, bits: int) -> bool:
    """Whether it is an int, from 0 on, of so many bits; numpy's are none, as JSON has no place for them."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << bits


def check_whole(what: str, value: object, bits: int) -> None:
    """Raise BAD_REQUEST unless `is_whole`; `what` names the value."""
    if not is_whole(value, bits):
        raise FlashrtError(
            ErrorCode.BAD_REQUEST, f"{what} {value!r} is not an unsigned {bits}-bit number; give an int from 0 on"
        )
