# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Images read in place have what the middleware's own reading gives."""

from __future__ import annotations

import struct
from array import array

import pytest

pytest.importorskip("rclpy")

from builtin_interfaces.msg import Time
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import Image
from std_msgs.msg import Header

from flashrt_ros.node.image_view import ImageView, view_image
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

FIELDS = ("header", "height", "width", "encoding", "is_bigendian", "step")


def image(frame: str = "", encoding: str = "rgb8") -> Image:
    header = Header(stamp=Time(sec=-3, nanosec=999_999_999), frame_id=frame)
    pixels = array("B", range(12))
    return Image(header=header, height=2, width=1, encoding=encoding, is_bigendian=1, step=6, data=pixels)


@pytest.mark.parametrize("frame", ["", "c", "ca", "cam", "came", "café"])
@pytest.mark.parametrize("encoding", ["rgb8", "rgba8", "16UC1", ""])
def test_every_field_is_read_whatever_the_lengths_before_it(frame: str, encoding: str) -> None:
    raw = serialize_message(image(frame, encoding))
    view, whole = view_image(raw), deserialize_message(raw, Image)
    assert isinstance(view, ImageView)
    assert [getattr(view, field) for field in FIELDS] == [getattr(whole, field) for field in FIELDS]
    assert bytes(view.data) == whole.data.tobytes()


def test_the_pixels_are_those_of_the_message_not_a_copy() -> None:
    raw = serialize_message(image())
    assert view_image(raw).data.obj is raw


def test_the_other_byte_order_is_read() -> None:
    raw = b"\0\0\0\0" + struct.pack(">iII1sxxxIII5sBxxIIB", 7, 8, 1, b"", 1, 1, 5, b"mono8", 0, 1, 1, 9)
    view = view_image(raw)
    assert (view.header.stamp.sec, view.header.stamp.nanosec, view.encoding, view.step) == (7, 8, "mono8", 1)
    assert bytes(view.data) == b"\x09"


@pytest.mark.parametrize("raw", [b"", b"\0\7\0\0", b"\0\7\0\0" + bytes(range(16))])
def test_bytes_of_an_encoding_that_the_middleware_cannot_read_either_are_refused(raw: bytes) -> None:
    with pytest.raises(FlashrtError, match="that are no Image"):
        view_image(raw)


@pytest.mark.parametrize("length", [0, 3, 4, 11, 14, 30, 47])
def test_bytes_that_end_too_early_are_refused(length: int) -> None:
    raw = serialize_message(image("camera"))[:length] or b"\0\1"
    with pytest.raises(FlashrtError) as refused:
        view_image(raw)
    assert refused.value.code is ErrorCode.BAD_OBSERVATION


def test_more_pixels_than_are_there_are_refused() -> None:
    raw = serialize_message(image())
    with pytest.raises(FlashrtError, match="12 bytes are announced, 11 are there"):
        view_image(raw[: raw.rindex(bytes(range(12))) + 11])
