# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from PIL import Image

from flashrt_ros.policy.images import fitted_size, resize_with_pad, stretch
from flashrt_ros.runtime.errors import ErrorCode

RANDOM = np.random.default_rng(0)


def bilinear(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Half-pixel centres, edges repeated; straight from the definition."""

    def taps(length: int, out: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        at = np.clip((np.arange(out) + 0.5) * length / out - 0.5, 0, None)
        low = np.floor(at).astype(int)
        return low, np.minimum(low + 1, length - 1), at - low

    (top, bottom, v), (left, right, u) = (taps(n, m) for n, m in zip(image.shape[:2], size, strict=True))
    x, u, v = image.astype(np.float64), u[None, :, None], v[:, None, None]
    rows = x[top] * (1 - v) + x[bottom] * v
    return rows[:, left] * (1 - u) + rows[:, right] * u


@pytest.mark.parametrize(
    ("shape", "inner", "corner"),
    [
        ((480, 640), (72, 96), (12, 0)),  # wide: bars above and below
        ((120, 61), (96, 48), (0, 24)),  # tall, int() cuts 48.8
        ((48, 31), (96, 62), (0, 17)),  # enlarged
        ((64, 95), (64, 96), (16, 0)),  # int() cuts 64.67
        ((95, 64), (96, 64), (0, 16)),
    ],
)
def test_fits_and_centres(shape: tuple[int, int], inner: tuple[int, int], corner: tuple[int, int]) -> None:
    image = RANDOM.integers(1, 256, (*shape, 3), np.uint8)
    frame = resize_with_pad(image, (96, 96), antialias=False)
    assert frame.shape == (96, 96, 3)
    assert frame.dtype == np.uint8
    (y, x), (h, w) = corner, inner
    inside = frame[y : y + h, x : x + w]
    assert np.abs(inside - bilinear(image, inner)).max() < 0.51
    outside = frame.copy()
    outside[y : y + h, x : x + w] = 0
    assert not outside.any()


@pytest.mark.parametrize("shape", [(480, 640), (120, 61), (48, 31)])
def test_antialiasing_is_pillows(shape: tuple[int, int]) -> None:
    image = RANDOM.integers(0, 256, (*shape, 3), np.uint8)
    height, width = fitted_size(shape, (96, 96))
    theirs = np.zeros((96, 96, 3), np.uint8)
    top, left = (96 - height) // 2, (96 - width) // 2
    resized = Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR)
    theirs[top : top + height, left : left + width] = np.asarray(resized)
    assert np.abs(resize_with_pad(image, (96, 96), antialias=True) - theirs.astype(int)).max() <= 1


@pytest.mark.parametrize("shape", [(480, 640), (120, 61), (48, 31)])
def test_stretching_is_what_pillow_does_unasked(shape: tuple[int, int]) -> None:
    image = RANDOM.integers(0, 256, (*shape, 3), np.uint8)
    theirs = Image.fromarray(image).resize((64, 96))
    assert np.array_equal(stretch(image, (96, 64)), np.asarray(theirs))
    assert stretch(image, shape) is image


def test_odd_pixel_of_padding_is_at_the_bottom_or_right() -> None:
    white = np.full((10, 10, 3), 255, np.uint8)
    assert resize_with_pad(white, (10, 13), antialias=False)[0, :, 0].tolist() == [0] + [255] * 10 + [0] * 2
    assert resize_with_pad(white, (13, 10), antialias=False)[:, 0, 0].tolist() == [0] + [255] * 10 + [0] * 2


def test_takes_any_memory_layout_and_leaves_it() -> None:
    image = RANDOM.integers(0, 256, (20, 30, 3), np.uint8)
    image.flags.writeable = False
    whole = resize_with_pad(image, (16, 16), antialias=False)
    flipped = np.ascontiguousarray(image[:, :, ::-1])[:, :, ::-1]
    assert np.array_equal(resize_with_pad(flipped, (16, 16), antialias=False), whole)
    assert resize_with_pad(image, (20, 30), antialias=False) is image


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((4, 4, 3), np.float32),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((4, 4), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
        np.zeros((500, 1, 3), np.uint8),
    ],
)
def test_refuses_what_is_no_image(image: np.ndarray, refuses) -> None:
    with refuses(ErrorCode.BAD_OBSERVATION):
        resize_with_pad(image, (96, 96), antialias=False)


def test_nothing_else_is_stretched_either(refuses) -> None:
    with refuses(ErrorCode.BAD_OBSERVATION, "uint8 [4, 4]"):
        stretch(np.zeros((4, 4), np.uint8), (4, 4))
