# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The operations that stages are made of: torch bodies, the reference for every other backend."""

from __future__ import annotations

from flashrt_ros.models.reference.attention import Attention
from flashrt_ros.models.reference.decoding import Decoding
from flashrt_ros.models.reference.delta_rule import DeltaRule
from flashrt_ros.models.reference.dense import Dense
from flashrt_ros.models.reference.images import Images
from flashrt_ros.models.reference.philox import Philox
from flashrt_ros.models.reference.rows import Rows


class Ops(Dense, Rows, Attention, DeltaRule, Decoding, Philox, Images):
    """Every operation writes its `out` arguments, the state or cursors that it says it moves, and nothing else.

    Sizes are those of the arguments; what varies between replays (lengths, positions, step and act
    indices) is an integer buffer that the operation itself reads. A backend overrides what it does better.
    """
