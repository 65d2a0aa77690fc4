# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The errors that a caller can meet, each with the code that services answer."""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """Mirrors the constants of the .srv files in flashrt_interfaces."""

    NONE = 0
    INACTIVE = 1
    BUSY = 2
    BAD_NAME = 3
    UNKNOWN_CAPSULE = 4
    DUPLICATE_NAME = 5
    EVICTED = 6
    NOT_BEGUN = 7
    EXACT_REFUSED = 8
    OVER_BUDGET = 9
    PINNED = 10
    MANIFEST_MISMATCH = 11
    BAD_INSTRUCTION = 12
    BAD_OBSERVATION = 13
    BAD_REQUEST = 14
    GATE_TIMEOUT = 15
    NOT_IN_JOURNAL = 16
    NOT_SUPPORTED = 17
    STORAGE = 18
    DAMAGED = 19
    NOT_FINITE = 20
    CANCELED = 21
    BAD_CHECKPOINT = 22
    BAD_CONTRACT = 23
    START_TOLERANCE = 24
    DEVICE = 25


class FlashrtError(Exception):
    """A refused or failed operation. The message names the thing, its value and what to do."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class DeviceRefusalError(FlashrtError):
    """DEVICE; it has no memory for what was asked of it, or no kernel, and is whole: to be asked for other things."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.DEVICE, message)
