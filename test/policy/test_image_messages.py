# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import io
from array import array
from types import SimpleNamespace as Message
from typing import Any

import numpy as np
import pytest
from PIL import Image

from flashrt_ros.policy.contract_observation import COMPRESSED_IMAGE, IMAGE, ImageSource
from flashrt_ros.policy.image_messages import MAX_PIXELS, ImageReader
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8)
ALPHA = np.full((4, 5, 1), 7, np.uint8)
MILLIMETRES = np.array([[0, 500, 1000], [1500, 2500, 65535]], np.uint16)
SHADES = [[0, 0, 64], [128, 255, 255]]
"""Of these millimetres, from 0.5 to 2.5 m."""

COLOUR = ImageReader(ImageSource("front", "camera", IMAGE, "reliable", 0.3))
DEPTH = ImageReader(ImageSource("front", "camera", IMAGE, "reliable", 0.3, "16UC1", depth_range=(0.5, 2.5)))
PACKED = ImageReader(ImageSource("front", "camera", COMPRESSED_IMAGE, "reliable", 0.3))
PACKED_DEPTH = ImageReader(
    ImageSource("front", "camera", COMPRESSED_IMAGE, "reliable", 0.3, "16UC1", depth_range=(0.5, 2.5))
)


def image(encoding: str, pixels: np.ndarray, padding: int = 0, is_bigendian: int = 0) -> Any:
    rows = pixels.reshape(len(pixels), -1).view(np.uint8)
    padded = np.pad(rows, ((0, 0), (0, padding)), constant_values=99)
    return Message(
        height=pixels.shape[0],
        width=pixels.shape[1],
        encoding=encoding,
        is_bigendian=is_bigendian,
        step=padded.shape[1],
        data=array("B", padded.tobytes()),
    )


def compressed(picture: Image.Image, kind: str, **options: Any) -> Any:
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return Message(format=f"bgr8; {kind.lower()} compressed bgr8", data=array("B", stream.getvalue()))


def read(reader: ImageReader, message: Any) -> np.ndarray:
    return reader.pixels(reader.checked(message))


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize(
    ("encoding", "pixels"),
    [
        ("rgb8", PIXELS),
        ("bgr8", PIXELS[:, :, ::-1]),
        ("rgba8", np.concatenate([PIXELS, ALPHA], axis=2)),
        ("bgra8", np.concatenate([PIXELS[:, :, ::-1], ALPHA], axis=2)),
    ],
)
def test_every_encoding_gives_the_same_pixels(encoding: str, pixels: np.ndarray, padding: int) -> None:
    assert (read(COLOUR, image(encoding, np.ascontiguousarray(pixels), padding)) == PIXELS).all()


def test_a_grey_image_has_three_equal_channels() -> None:
    assert (read(COLOUR, image("mono8", np.ascontiguousarray(PIXELS[:, :, :1]), 2)) == PIXELS[:, :, :1]).all()


@pytest.mark.parametrize("extra", [None, 7])
def test_a_png_gives_the_same_pixels(extra: int | None) -> None:
    picture = Image.fromarray(PIXELS)
    if extra is not None:
        picture.putalpha(extra)
    assert (read(PACKED, compressed(picture, "PNG")) == PIXELS).all()


def test_a_jpeg_gives_the_same_pixels_within_its_loss() -> None:
    smooth = np.stack([np.tile(np.arange(32, dtype=np.uint8) * 8, (32, 1))] * 3, axis=2)
    smooth[:, :, 2] = 255 - smooth[:, :, 2]
    found = read(PACKED, compressed(Image.fromarray(smooth), "JPEG", quality=95)).astype(int)
    assert found.shape == smooth.shape
    assert np.abs(found - smooth).max() < 12


@pytest.mark.parametrize("padding", [0, 1, 4])
@pytest.mark.parametrize("order", ["<", ">"])
def test_depth_becomes_shades_of_its_range(order: str, padding: int) -> None:
    message = image("16UC1", MILLIMETRES.astype(f"{order}u2"), padding, order == ">")
    pixels = read(DEPTH, message)
    assert pixels.dtype == np.uint8
    for channel in range(3):
        assert pixels[:, :, channel].tolist() == SHADES


def test_depth_may_come_as_a_png_of_16_bits() -> None:
    assert read(PACKED_DEPTH, compressed(Image.fromarray(MILLIMETRES), "PNG"))[:, :, 0].tolist() == SHADES


@pytest.mark.parametrize(
    ("reader", "message", "named"),
    [
        (COLOUR, image("16UC1", MILLIMETRES), "encoding '16UC1' is depth, and the contract declares colour"),
        (COLOUR, image("yuv422", PIXELS), "encoding 'yuv422'; use one of rgb8"),
        (COLOUR, image("rgb8", PIXELS[:, :, :1].copy()), "a row takes 15"),
        (COLOUR, Message(encoding="rgb8", height=0, width=0, step=0, data=b""), "0x0 pixels"),
        (COLOUR, Message(encoding="rgb8", height=4, width=5, step=15, data=b""), "0 bytes of data"),
        (COLOUR, Message(encoding="rgb8", height=1, width=MAX_PIXELS + 1, step=0, data=b""), "at most are taken"),
        (DEPTH, image("rgb8", PIXELS), "the contract declares 16UC1 depth"),
        (DEPTH, image("16UC1", PIXELS[:, :, :1].copy()), "a row takes 10"),
        (PACKED, compressed(Image.fromarray(MILLIMETRES), "PNG"), "PNG of mode '.*'; the contract declares colour"),
        (PACKED_DEPTH, compressed(Image.fromarray(PIXELS), "PNG"), "mode 'RGB'; the contract declares 16UC1"),
        (PACKED, compressed(Image.fromarray(PIXELS), "GIF"), "no JPEG or PNG"),
        (PACKED, Message(format="jpeg", data=b""), "0 bytes of format 'jpeg' are no JPEG or PNG"),
        (PACKED, Message(format="16UC1; compressedDepth png", data=b"x"), "send depth as a plain 16 bit PNG"),
        (PACKED, compressed(Image.new("1", (4097, 4096)), "PNG"), "4097x4096 pixels; 16777216 at most"),
    ],
)
def test_an_image_that_is_not_what_it_says_is_refused(reader: ImageReader, message: Any, named: str) -> None:
    with pytest.raises(FlashrtError, match=named) as refused:
        reader.checked(message)
    assert refused.value.code is ErrorCode.BAD_OBSERVATION


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_data_that_break_off_are_refused_when_they_are_decoded(kind: str) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8)
    message = compressed(Image.fromarray(noise), kind)
    message.data = message.data[: len(message.data) // 2]
    PACKED.checked(message)
    with pytest.raises(FlashrtError, match=f"its {kind} data cannot be decoded") as refused:
        PACKED.pixels(message)
    assert refused.value.code is ErrorCode.BAD_OBSERVATION
