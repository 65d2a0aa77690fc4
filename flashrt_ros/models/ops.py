# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The operations that stages are made of: torch bodies, the reference for every other backend."""

from __future__ import annotations

from flashrt_ros.models.reference.composites import Composites
from flashrt_ros.models.reference.flow import Flow
from flashrt_ros.models.reference.images import Images
from flashrt_ros.models.reference.philox import Philox


class Ops(Composites, Flow, Philox, Images):
    """Every operation writes its `out` arguments, the state or cursors that it says it moves, and nothing else.

    Sizes are those of the arguments; what varies between replays (lengths, positions, step and act
    indices) is an integer buffer that the operation itself reads. A backend overrides what it does better.
    """
