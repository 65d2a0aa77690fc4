# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What one leg of the demo did, byte by byte, and how two legs differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Leg:
    """One run of the policy.

    Attributes:
        chunks: bytes of every chunk of which rows ran, in order.
        commands: bytes of the command of every tick, in order.
        digest: sha256 of the policy's state behind it; empty: not taken.
    """

    chunks: tuple[bytes, ...]
    commands: tuple[bytes, ...]
    digest: str = ""


def differences(one: Leg, other: Leg) -> list[str]:
    """Return how two legs differ, in words; empty where every byte is equal."""
    found = [
        *_sequence("chunk", one.chunks, other.chunks),
        *_sequence("joint command", one.commands, other.commands),
    ]
    if one.digest != other.digest:
        found.append(f"state behind it: sha256 {one.digest[:12] or 'none'} against {other.digest[:12] or 'none'}")
    return found


def _sequence(what: str, one: Sequence[bytes], other: Sequence[bytes]) -> list[str]:
    if len(one) != len(other):
        return [f"{len(one)} {what}s against {len(other)}"]
    unequal = [index for index, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
    if not unequal:
        return []
    return [f"{len(unequal)} of {len(one)} {what}s, the first is number {unequal[0] + 1}"]
