# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Messages that came serialised: rclpy lets those pass that are none, where it would have dropped them by itself."""

from __future__ import annotations

from typing import Any

from rclpy._rclpy_pybind11 import RMWError
from rclpy.serialization import deserialize_message

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


def read_message(raw: bytes, kind: type) -> Any:
    """Return the message; BAD_OBSERVATION for bytes that are none, as a sender with another definition sends them."""
    try:
        return deserialize_message(raw, kind)
    except RMWError as error:
        raise FlashrtError(ErrorCode.BAD_OBSERVATION, f"{len(raw)} bytes that are no {kind.__name__}") from error
