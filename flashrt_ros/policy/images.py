# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Camera images to the size that a policy was trained on."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image as Picture

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


def resize_with_pad(image: np.ndarray, size: tuple[int, int], *, antialias: bool) -> np.ndarray:
    """Fit an image into a frame, keep its aspect ratio and pad with black.

    Bilinear without aligned corners, sizes cut to integers, the odd pixel of padding at the right or the bottom.

    Args:
        image: uint8 [height, width, 3], RGB.
        size: (height, width) of the frame.
        antialias: average all pixels that a smaller one covers, as openpi trains: its ResizeImages is Pillow's
            BILINEAR, from which this differs by one level at most. LeRobot trains without.

    Returns:
        uint8 [height, width, 3]; `image` itself where it has that size already.

    Raises:
        FlashrtError: BAD_OBSERVATION for another shape or type, or an image too thin to be shown in the frame.
    """
    _check(image)
    if image.shape[:2] == size:
        return image
    height, width = fitted_size(image.shape[:2], size)
    pixels = torch.from_numpy(image.copy(order="C")).permute(2, 0, 1).unsqueeze(0)
    # What torch does with uint8 is Pillow's arithmetic; without antialiasing floats are what others resize.
    resized = torch.nn.functional.interpolate(
        pixels if antialias else pixels.float(), (height, width), mode="bilinear", antialias=antialias
    )
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    frame = np.zeros((*size, 3), np.uint8)
    frame[top : top + height, left : left + width] = resized[0].round().to(torch.uint8).permute(1, 2, 0).numpy()
    return frame


def stretch(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Bring an image to a size without regard to its aspect ratio, as Pillow's BICUBIC does.

    That is what Image.resize does if it is told nothing else, as StarVLA's training calls it, and, but for one level
    here and there, what Qwen's image processor does.

    Args:
        image: uint8 [height, width, 3], RGB.
        size: (height, width).

    Returns:
        uint8 [height, width, 3]; `image` itself where it has that size already.

    Raises:
        FlashrtError: BAD_OBSERVATION for another shape or type.
    """
    _check(image)
    if image.shape[:2] == size:
        return image
    picture = Picture.fromarray(np.ascontiguousarray(image))
    return np.asarray(picture.resize(size[::-1], Picture.Resampling.BICUBIC))


def _check(image: np.ndarray) -> None:
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
        raise FlashrtError(
            ErrorCode.BAD_OBSERVATION,
            f"image is {image.dtype} {list(image.shape)}; give uint8 [height, width, 3], RGB",
        )


def fitted_size(image_size: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """(height, width) of an image scaled to fit into a frame of `size`, cut to integers."""
    ratio = max(image_size[1] / size[1], image_size[0] / size[0])
    height, width = int(image_size[0] / ratio), int(image_size[1] / ratio)
    if not height or not width:
        raise FlashrtError(
            ErrorCode.BAD_OBSERVATION,
            f"image of {image_size[0]}x{image_size[1]} pixels is too thin for a frame of {size[0]}x{size[1]}",
        )
    return height, width
