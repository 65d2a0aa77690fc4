# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The simulated robot's messages: world to ROS, and commands back to joint targets."""

from __future__ import annotations

import array

import numpy as np
from numpy.typing import NDArray
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import UInt8MultiArray

from flashrt_ros.demo.world import JOINTS, World
from flashrt_ros.node.stamps import from_nanoseconds
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


def joint_state(world: World, stamp: int) -> JointState:
    """Return the measured positions (rad) and velocities (rad/s) of all joints, stamped `stamp` (ns)."""
    message = JointState(name=list(JOINTS), position=world.positions.tolist(), velocity=world.velocities.tolist())
    message.header.stamp = from_nanoseconds(stamp)
    return message


def image_message(pixels: NDArray[np.uint8], frame: str, stamp: int) -> Image:
    """Return [height, width, 3] RGB pixels as an rgb8 image, stamped `stamp` (ns)."""
    height, width, _ = pixels.shape
    message = Image(height=height, width=width, encoding="rgb8", is_bigendian=0, step=3 * width)
    message.data = array.array(
        "B", pixels.tobytes()
    )  # rclpy takes this as it is and copies other sequences item by item
    message.header.stamp = from_nanoseconds(stamp)
    message.header.frame_id = frame
    return message


def state_message(state: bytes) -> UInt8MultiArray:
    """Return a saved state of the scene."""
    return UInt8MultiArray(data=array.array("B", state))


def targets_of(command: JointState) -> NDArray[np.float64]:
    """Return a command's positions in the order of JOINTS.

    Raises:
        FlashrtError: BAD_REQUEST unless every joint is named once and has a finite position.
    """
    names = list(command.name)
    if sorted(names) != sorted(JOINTS):
        raise FlashrtError(ErrorCode.BAD_REQUEST, f"command names joints {names}: name each of {list(JOINTS)} once")
    if len(command.position) != len(names):
        raise FlashrtError(
            ErrorCode.BAD_REQUEST, f"command has {len(command.position)} positions for {len(names)} joints"
        )
    targets = np.array([command.position[names.index(joint)] for joint in JOINTS])
    if not np.isfinite(targets).all():
        raise FlashrtError(ErrorCode.BAD_REQUEST, f"command has a position that is not finite: {targets.tolist()}")
    return targets
