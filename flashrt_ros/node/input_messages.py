# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The message classes that a contract can observe, and when a message was taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from geometry_msgs.msg import Pose, PoseStamped, Wrench, WrenchStamped
from sensor_msgs.msg import CompressedImage, Image, JointState
from std_msgs.msg import Float64MultiArray, String

from flashrt_ros.node.stamps import to_nanoseconds
from flashrt_ros.policy.contract_observation import IMAGE_TYPES
from flashrt_ros.policy.image_messages import MAX_PIXELS

INPUT_TYPES: dict[str, type] = {
    "sensor_msgs/msg/Image": Image,
    "sensor_msgs/msg/CompressedImage": CompressedImage,
    "sensor_msgs/msg/JointState": JointState,
    "std_msgs/msg/Float64MultiArray": Float64MultiArray,
    "std_msgs/msg/String": String,
    "geometry_msgs/msg/Pose": Pose,
    "geometry_msgs/msg/PoseStamped": PoseStamped,
    "geometry_msgs/msg/Wrench": Wrench,
    "geometry_msgs/msg/WrenchStamped": WrenchStamped,
}

_IMAGE_BYTES = 4 * MAX_PIXELS + 4096
_NUMBERS_BYTES = 1 << 20


def size_limit(kind: str) -> int:
    """Bytes that a serialised message of a type may have."""
    return _IMAGE_BYTES if kind in IMAGE_TYPES else _NUMBERS_BYTES


def stamp_of(source: str, message: Any, now: Callable[[], int]) -> int:
    """Return the header's stamp, or `now()` where a source is taken by the time of its receipt ("receive"); ns."""
    return to_nanoseconds(message.header.stamp) if source == "header" else now()
