# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The names that capsules, and so their files, may have, and the labels of forks."""

from __future__ import annotations

import re

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
"""One path component that no shell, file system or URL reads as anything else."""

EPISODE_START = "episode_start"
"""In `restore`: the kept start of the running episode, whatever its instruction."""

LABEL_LIMIT = 256


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


def check_new_name(name: str) -> None:
    """Raise BAD_NAME, or DUPLICATE_NAME for the name that every episode's start has, unless a capsule can get it."""
    check_name(name)
    if name == EPISODE_START:
        raise FlashrtError(
            ErrorCode.DUPLICATE_NAME, f"capsule name {name!r} is that of the running episode's start; choose another"
        )


def check_label(label: str) -> None:
    """Raise BAD_REQUEST unless a fork can have the label."""
    if not 0 < len(label) <= LABEL_LIMIT:
        raise FlashrtError(
            ErrorCode.BAD_REQUEST, f"label {label[:80]!r} has {len(label)} characters; give 1 to {LABEL_LIMIT}"
        )
