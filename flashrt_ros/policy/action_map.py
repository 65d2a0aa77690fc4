# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From the rows that a policy draws to those that a robot executes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.policy.contract_action import Action
from flashrt_ros.policy.contract_keys import quoted
from flashrt_ros.policy.conversions import unconverted
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


class ActionMap:
    """Takes the contract's slice of the outputs, and undoes the conversions of the state."""

    def __init__(self, action: Action, names: Sequence[str]) -> None:
        """`names`: of the policy's outputs; BAD_CONTRACT where those of the slice are not the contract's joints."""
        first, end = action.outputs or (0, len(names))
        self.joints = tuple(names[first:end])
        """Of the rows, in their order."""
        if sorted(self.joints) != sorted(action.joints):
            where = f"outputs {first} to {end - 1} of the {len(names)}" if action.outputs else "the outputs"
            raise FlashrtError(
                ErrorCode.BAD_CONTRACT,
                f"action.joints is {quoted(action.joints)}; {where} that the checkpoint has are "
                f"{quoted(self.joints) or 'none'}",
            )
        self._slice = slice(first, end)
        self._conversions = tuple(action.conversions[action.joints.index(joint)] for joint in self.joints)

    def rows(self, actions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rows [horizon, joints] in the robot's units, of actions [horizon, outputs] in the policy's."""
        return np.ascontiguousarray(unconverted(actions[:, self._slice], self._conversions))
