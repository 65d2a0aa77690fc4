# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The names that capsules, and so their files, may have."""

from __future__ import annotations

import re

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
"""One path component that no shell, file system or URL reads as anything else."""


def is_name(name: object) -> bool:
    """Whether `name` may name a capsule."""
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def check_name(name: object) -> None:
    """Raise BAD_NAME unless `name` may name a capsule."""
    if not is_name(name):
        raise FlashrtError(
            ErrorCode.BAD_NAME,
            f"capsule name {str(name)[:200]!r}: 1 to 128 letters, digits, '_', '.' and '-', first a letter or a digit",
        )
