# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How large the fields of a request may be. What is larger is refused before anything remembers it."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

from flashrt_ros.policy.names import LABEL_LIMIT
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

BOUNDS: dict[str, tuple[int, ErrorCode]] = {
    "request_id": (128, ErrorCode.BAD_REQUEST),
    "name": (128, ErrorCode.BAD_NAME),
    "start_from": (128, ErrorCode.BAD_NAME),
    "label": (LABEL_LIMIT, ErrorCode.BAD_REQUEST),
    "reason": (1024, ErrorCode.BAD_REQUEST),
    "instruction": (8192, ErrorCode.BAD_INSTRUCTION),
    "seeds": (256, ErrorCode.BAD_REQUEST),
}
"""Characters of a text or numbers of a list, by field, and the code of the refusal."""


def check_bounds(request: Any) -> None:
    """Raise the code of a field that is larger than it may be, naming both sizes."""
    for name in BOUNDS:
        check_bound(name, getattr(request, name, ()))


def check_bound(name: str, value: Sized) -> None:
    """Raise the code of one field if its value is larger than it may be."""
    limit, code = BOUNDS[name]
    if len(value) > limit:
        unit = "characters" if isinstance(value, str) else "entries"
        raise FlashrtError(code, f"{name} has {len(value)} {unit}, {limit} are allowed")
