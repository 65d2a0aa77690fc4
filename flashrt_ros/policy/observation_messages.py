# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Images and joint states, checked, as arrays: of sensor_msgs as ROS has them, or as a bag's reader makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

_CHANNELS: dict[str, tuple[int, tuple[int, int, int]]] = {
    "rgb8": (3, (0, 1, 2)),
    "bgr8": (3, (2, 1, 0)),
    "rgba8": (4, (0, 1, 2)),
    "bgra8": (4, (2, 1, 0)),
    "mono8": (1, (0, 0, 0)),
}
"""Encoding to bytes a pixel, and where red, green and blue stand in it."""


class ImageMessage(Protocol):
    """What sensor_msgs/msg/Image has."""

    height: int
    width: int
    encoding: str
    step: int
    data: Any


class JointMessage(Protocol):
    """What sensor_msgs/msg/JointState has."""

    name: Sequence[str]
    position: Any


Image = TypeVar("Image", bound=ImageMessage)


def checked_image(image: Image) -> Image:
    """Return the image itself; BAD_OBSERVATION for an unknown encoding, no pixels, or data of the wrong length."""
    if image.encoding not in _CHANNELS:
        raise _bad(f"encoding '{image.encoding}'; use one of {', '.join(_CHANNELS)}")
    channels, _ = _CHANNELS[image.encoding]
    row = image.width * channels
    if not image.height or not image.width or image.step < row:
        raise _bad(
            f"{image.width}x{image.height} pixels of {image.encoding} with rows of {image.step} bytes; "
            f"a row takes {row} at least"
        )
    if len(image.data) != image.height * image.step:
        raise _bad(
            f"{len(image.data)} bytes of data, {image.height} rows of {image.step} are {image.height * image.step}"
        )
    return image


def rgb_of(image: ImageMessage) -> NDArray[np.uint8]:
    """Return the pixels of an image that was checked, uint8 [height, width, 3] in RGB.

    Rows may be padded (`step`); alpha is dropped.
    """
    channels, order = _CHANNELS[image.encoding]
    padded = np.frombuffer(image.data, np.uint8).reshape(image.height, image.step)
    pixels = padded[:, : image.width * channels].reshape(image.height, image.width, channels)
    return np.stack([pixels[:, :, channel] for channel in order], axis=2)


def positions_of(state: JointMessage, joints: Sequence[str]) -> NDArray[np.float64]:
    """Return the positions of `joints` in their order, selected by name; other joints may be there too.

    Raises:
        FlashrtError: BAD_OBSERVATION if one is missing, named twice, or not finite; never a shorter vector.
    """
    names = list(state.name)
    if len(state.position) != len(names):
        raise _bad(f"{len(state.position)} positions for {len(names)} joint names")
    missing = [joint for joint in joints if joint not in names]
    if missing:
        raise _bad(f"joint '{missing[0]}' is missing; the message names {', '.join(names) or 'none'}")
    twice = [joint for joint in joints if names.count(joint) > 1]
    if twice:
        raise _bad(f"joint '{twice[0]}' is named twice")
    positions = np.array([state.position[names.index(joint)] for joint in joints], np.float64)
    for joint, position in zip(joints, positions, strict=True):
        if not np.isfinite(position):
            raise _bad(f"joint '{joint}' is {position}")
    return positions


def _bad(message: str) -> FlashrtError:
    return FlashrtError(ErrorCode.BAD_OBSERVATION, message)
