# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Joint targets as the message that a robot's controller takes.

Each message is made once and filled anew for a tick: the control tick allocates as little as it can.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray, MultiArrayDimension
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from flashrt_ros.node.stamps import from_nanoseconds
from flashrt_ros.policy.contract_action import Action

Fill = Callable[[int, NDArray[np.float64]], Any]
"""Takes the tick's time in ns and targets [joints]; returns the message."""


def command_message(action: Action) -> tuple[type, Fill]:
    """Return the message class that the contract names, and what fills it."""
    return {
        "sensor_msgs/msg/JointState": _joint_state,
        "std_msgs/msg/Float64MultiArray": _multi_array,
        "trajectory_msgs/msg/JointTrajectory": _trajectory,
    }[action.command.type](action)


def _joint_state(action: Action) -> tuple[type, Fill]:
    message = JointState(name=list(action.joints))

    def fill(stamp: int, positions: NDArray[np.float64]) -> JointState:
        message.header.stamp = from_nanoseconds(stamp)
        message.position = array("d", positions.tobytes())
        return message

    return JointState, fill


def _multi_array(action: Action) -> tuple[type, Fill]:
    message = Float64MultiArray()
    size = len(action.joints)
    message.layout.dim = [MultiArrayDimension(label="joints", size=size, stride=size)]

    def fill(stamp: int, positions: NDArray[np.float64]) -> Float64MultiArray:
        message.data = array("d", positions.tobytes())
        return message

    return Float64MultiArray, fill


def _trajectory(action: Action) -> tuple[type, Fill]:
    point = JointTrajectoryPoint()
    point.time_from_start.sec, point.time_from_start.nanosec = divmod(action.period, 1_000_000_000)
    message = JointTrajectory(joint_names=list(action.joints), points=[point])

    def fill(stamp: int, positions: NDArray[np.float64]) -> JointTrajectory:
        message.header.stamp = from_nanoseconds(stamp)
        point.positions = array("d", positions.tobytes())
        return message

    return JointTrajectory, fill
