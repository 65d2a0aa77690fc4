# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A serialised sensor_msgs/msg/Image read in place: its pixels are not copied until they are used.

A camera sends many more images than inferences take, and copying all of them costs more than anything else that comes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from builtin_interfaces.msg import Time
from sensor_msgs.msg import Image
from std_msgs.msg import Header

from flashrt_ros.node.raw_messages import read_message
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

_BYTE_ORDERS = {b"\x00\x00": ">", b"\x00\x01": "<"}
"""Plain CDR, as all Image messages of today's middlewares are."""

_ORIGIN = 4
"""Where the message begins; fields are aligned from there."""


@dataclass(frozen=True, slots=True)
class ImageView:
    """The fields of an Image; `data` is a view of the message's bytes."""

    header: Header
    height: int
    width: int
    encoding: str
    is_bigendian: int
    step: int
    data: memoryview


def view_image(raw: bytes) -> ImageView | Image:
    """Return the image; BAD_OBSERVATION for bytes that are none."""
    order = _BYTE_ORDERS.get(raw[:2])
    if order is None:
        image: Image = read_message(raw, Image)
        return image
    fields = _Fields(raw, order)
    try:
        stamp = Time(sec=fields.number("i"), nanosec=fields.number("I"))
        header = Header(stamp=stamp, frame_id=fields.text())
        height, width, encoding = fields.number("I"), fields.number("I"), fields.text()
        big, step = fields.number("B"), fields.number("I")
        data = fields.sized()
    except (struct.error, UnicodeDecodeError, AssertionError) as error:
        raise FlashrtError(ErrorCode.BAD_OBSERVATION, f"{len(raw)} bytes that are no Image: {error}") from error
    return ImageView(header, height, width, encoding, big, step, data)


class _Fields:
    """Reads one field after the other."""

    def __init__(self, raw: bytes, order: str) -> None:
        self._raw = raw
        self._order = order
        self._at = _ORIGIN

    def number(self, kind: str) -> int:
        size = struct.calcsize(kind)
        self._at += (_ORIGIN - self._at) % size
        (value,) = struct.unpack_from(self._order + kind, self._raw, self._at)
        self._at += size
        return int(value)

    def sized(self) -> memoryview:
        """Bytes behind their number."""
        size = self.number("I")
        if size > len(self._raw) - self._at:
            raise struct.error(f"{size} bytes are announced, {len(self._raw) - self._at} are there")
        self._at += size
        return memoryview(self._raw)[self._at - size : self._at]

    def text(self) -> str:
        return bytes(self.sized()).rstrip(b"\0").decode()
