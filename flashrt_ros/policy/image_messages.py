# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Images, raw or compressed, as RGB pixels: of sensor_msgs as ROS has them, or as a bag's reader makes them.

Checking one is cheap and is done where it comes; decoding it is not, and is done where it is used.
"""

from __future__ import annotations

import io
import warnings
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Picture

from flashrt_ros.policy.contract_observation import COMPRESSED_IMAGE, ImageSource
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

MAX_PIXELS = 1 << 24
"""Of an image, so that one message cannot take all memory; 4096x4096."""

_CHANNELS: dict[str, tuple[int, tuple[int, int, int]]] = {
    "rgb8": (3, (0, 1, 2)),
    "bgr8": (3, (2, 1, 0)),
    "rgba8": (4, (0, 1, 2)),
    "bgra8": (4, (2, 1, 0)),
    "mono8": (1, (0, 0, 0)),
}
"""Colour encoding to bytes a pixel, and where red, green and blue stand in it."""

_DEPTH = "16UC1"
_COLOUR_MODES = ("L", "LA", "P", "PA", "RGB", "RGBA")
_DEPTH_MODES = ("I;16", "I;16B", "I")


class ImageMessage(Protocol):
    """What sensor_msgs/msg/Image has."""

    height: int
    width: int
    encoding: str
    is_bigendian: int
    step: int
    data: Any


class CompressedMessage(Protocol):
    """What sensor_msgs/msg/CompressedImage has."""

    format: str
    data: Any


Message = TypeVar("Message")


class ImageReader:
    """Reads what one camera of a contract sends."""

    def __init__(self, source: ImageSource) -> None:
        self._compressed = source.type == COMPRESSED_IMAGE
        self._depth_range = source.depth_range

    def checked(self, message: Message) -> Message:
        """Return the message itself; BAD_OBSERVATION for one that is not what it says, or not what was declared."""
        checked: Any = message
        if self._compressed:
            self._open(checked)
        elif self._depth_range is None:
            checked_image(checked)
        else:
            _checked_depth(checked)
        return message

    def pixels(self, message: Any) -> NDArray[np.uint8]:
        """Return a checked message's pixels, uint8 [height, width, 3]: RGB, or depth three times over.

        Raises:
            FlashrtError: BAD_OBSERVATION, compressed data cannot be decoded.
        """
        if self._compressed:
            return self._decoded(message)
        if self._depth_range is None:
            return rgb_of(message)
        kind = np.dtype(np.uint16).newbyteorder(">" if message.is_bigendian else "<")
        padded = np.frombuffer(message.data, np.uint8).reshape(message.height, message.step)
        return self._shades(np.ascontiguousarray(padded[:, : 2 * message.width]).view(kind))

    def _open(self, message: CompressedMessage) -> Picture.Image:
        """Read the header; the pixels are not decoded yet."""
        if "compressedDepth" in message.format:
            raise _bad(f"format '{message.format}'; send depth as a plain 16 bit PNG, or raw")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", Picture.DecompressionBombWarning)
                picture = Picture.open(io.BytesIO(message.data), formats=("JPEG", "PNG"))
        except (OSError, ValueError, SyntaxError, Picture.DecompressionBombError) as error:
            raise _bad(f"{len(message.data)} bytes of format '{message.format}' are no JPEG or PNG") from error
        if picture.width * picture.height > MAX_PIXELS:
            raise _bad(f"{picture.width}x{picture.height} pixels; {MAX_PIXELS} at most are taken")
        wanted = _COLOUR_MODES if self._depth_range is None else _DEPTH_MODES
        if picture.mode not in wanted:
            declared = "colour" if self._depth_range is None else "16UC1 depth"
            raise _bad(f"a {picture.format} of mode '{picture.mode}'; the contract declares {declared}")
        return picture

    def _decoded(self, message: CompressedMessage) -> NDArray[np.uint8]:
        picture = self._open(message)
        try:
            if self._depth_range is None:
                return np.asarray(picture.convert("RGB"))
            return self._shades(np.asarray(picture))
        except (OSError, ValueError, SyntaxError) as error:
            raise _bad(f"its {picture.format} data cannot be decoded: {error}") from error

    def _shades(self, millimetres: NDArray[Any]) -> NDArray[np.uint8]:
        assert self._depth_range is not None
        near, far = self._depth_range
        shade = np.clip((millimetres * 1e-3 - near) / (far - near), 0.0, 1.0) * 255.0
        return np.repeat(shade.round().astype(np.uint8)[:, :, None], 3, axis=2)


def checked_image(image: ImageMessage) -> None:
    """Raise BAD_OBSERVATION for an encoding that is no colour, no pixels, or data of the wrong length."""
    if image.encoding == _DEPTH:
        raise _bad(
            f"encoding '{_DEPTH}' is depth, and the contract declares colour; send one of {', '.join(_CHANNELS)}, or "
            f"declare encoding: {_DEPTH} with a depth_range"
        )
    if image.encoding not in _CHANNELS:
        raise _bad(f"encoding '{image.encoding}'; use one of {', '.join(_CHANNELS)}")
    channels, _ = _CHANNELS[image.encoding]
    _check_size(image, channels)


def rgb_of(image: ImageMessage) -> NDArray[np.uint8]:
    """Return the pixels of an image that was checked, uint8 [height, width, 3] in RGB.

    Rows may be padded (`step`); alpha is dropped.
    """
    channels, order = _CHANNELS[image.encoding]
    padded = np.frombuffer(image.data, np.uint8).reshape(image.height, image.step)
    pixels = padded[:, : image.width * channels].reshape(image.height, image.width, channels)
    return np.stack([pixels[:, :, channel] for channel in order], axis=2)


def _checked_depth(image: ImageMessage) -> None:
    if image.encoding != _DEPTH:
        raise _bad(f"encoding '{image.encoding}'; the contract declares {_DEPTH} depth")
    _check_size(image, 2)


def _check_size(image: ImageMessage, nbytes: int) -> None:
    """Check an image of `nbytes` a pixel."""
    row = image.width * nbytes
    if image.width * image.height > MAX_PIXELS:
        raise _bad(f"{image.width}x{image.height} pixels; {MAX_PIXELS} at most are taken")
    if not image.height or not image.width or image.step < row:
        raise _bad(
            f"{image.width}x{image.height} pixels of {image.encoding} with rows of {image.step} bytes; "
            f"a row takes {row} at least"
        )
    if len(image.data) != image.height * image.step:
        raise _bad(
            f"{len(image.data)} bytes of data, {image.height} rows of {image.step} are {image.height * image.step}"
        )


def _bad(message: str) -> FlashrtError:
    return FlashrtError(ErrorCode.BAD_OBSERVATION, message)
