# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Commands as the message that a robot's controller takes.

Each message is made once and filled anew for a tick: the control tick allocates as little as it can.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray, MultiArrayDimension
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from flashrt_ros.node.stamps import duration_of, from_nanoseconds
from flashrt_ros.policy.contract_action import Command

Fill = Callable[[int, NDArray[np.float64]], Any]
"""Takes the tick's time in ns and commands [rows, joints]; returns the message. All but a trajectory hold one row."""


def command_message(command: Command, joints: Sequence[str], period: int) -> tuple[type, Fill]:
    """Return the message class that a command names, and what fills it for `joints`; `period`: ns between ticks."""
    return {
        "sensor_msgs/msg/JointState": _joint_state,
        "std_msgs/msg/Float64MultiArray": _multi_array,
        "trajectory_msgs/msg/JointTrajectory": _trajectory,
    }[command.type](joints, command.interface, period)


def _joint_state(joints: Sequence[str], field: str, period: int) -> tuple[type, Fill]:
    message = JointState(name=list(joints))

    def fill(stamp: int, rows: NDArray[np.float64]) -> JointState:
        message.header.stamp = from_nanoseconds(stamp)
        setattr(message, field, array("d", rows.tobytes()))
        return message

    return JointState, fill


def _multi_array(joints: Sequence[str], field: str, period: int) -> tuple[type, Fill]:
    message = Float64MultiArray()
    size = len(joints)
    message.layout.dim = [MultiArrayDimension(label="joints", size=size, stride=size)]

    def fill(stamp: int, rows: NDArray[np.float64]) -> Float64MultiArray:
        message.data = array("d", rows.tobytes())
        return message

    return Float64MultiArray, fill


def _trajectory(joints: Sequence[str], field: str, period: int) -> tuple[type, Fill]:
    points: list[JointTrajectoryPoint] = []
    message = JointTrajectory(joint_names=list(joints))

    def fill(stamp: int, rows: NDArray[np.float64]) -> JointTrajectory:
        while len(points) < len(rows):
            points.append(JointTrajectoryPoint(time_from_start=duration_of((len(points) + 1) * period)))
        for point, row in zip(points, rows, strict=False):
            point.positions = array("d", row.tobytes())
        if len(message.points) != len(rows):
            message.points = points[: len(rows)]
        message.header.stamp = from_nanoseconds(stamp)
        return message

    return JointTrajectory, fill
