# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Keys of the noise generator."""

from __future__ import annotations

from flashrt_ros.policy.whole import check_whole

_MASK = (1 << 64) - 1


def key_from_seed(seed: int) -> int:
    """The seed's 64 bits as the int64 that the state buffer holds; BAD_REQUEST if it is no such number."""
    check_whole("seed", seed, 64)
    return seed - (1 << 64) if seed >> 63 else seed


def seed_from_key(key: int) -> int:
    """The seed whose key this is."""
    return key & _MASK


def fold_retry(key: int, retry: int) -> int:
    """Mix a retry counter of 32 bits into a key; 0 leaves it as it is. BAD_REQUEST if it is no such number.

    SplitMix64's finaliser (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
    """
    check_whole("retry", retry, 32)
    if retry == 0:
        return key
    z = (seed_from_key(key) + retry * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return key_from_seed(z ^ (z >> 31))
