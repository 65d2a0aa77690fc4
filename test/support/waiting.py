# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Waiting for conditions, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest


def wait(condition: Callable[[], Any], timeout: float = 20.0, what: object = "") -> Any:
    """Return the condition's first true value; fail where none comes in time. `what` may be called for its text."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout} s in vain for {what() if callable(what) else what or condition}")
        time.sleep(0.001)
