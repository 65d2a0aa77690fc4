# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a contract declares for trouble, joint by joint."""

from __future__ import annotations

from collections.abc import Sequence

from flashrt_ros.policy.contract_action import SafetyGroup


class SafetyAction:
    """Which of the commanded joints are brought to rest; the others are told nothing any more."""

    def __init__(self, joints: Sequence[str], groups: Sequence[SafetyGroup]) -> None:
        """`joints`: the commanded ones, in their order; each is in one of the groups."""
        held = {joint for group in groups if group.action != "release" for joint in group.joints}
        self.columns = [column for column, joint in enumerate(joints) if joint in held]
        """Of the held joints among the commanded ones."""
        self.joints = tuple(joints[column] for column in self.columns)
        self.timeout = min((group.timeout for group in groups if group.timeout is not None), default=None)
        """Seconds after which a hold is an error; None: it may last."""
