# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from array import array
from types import SimpleNamespace as Message
from typing import Any

import numpy as np
import pytest

from flashrt_ros.policy.observation_messages import checked_image, joints_of, rgb_of
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8)
ALPHA = np.full((4, 5, 1), 7, np.uint8)


def image(encoding: str, pixels: np.ndarray, padding: int = 0) -> Any:
    rows = pixels.reshape(len(pixels), -1)
    padded = np.pad(rows, ((0, 0), (0, padding)), constant_values=99)
    data = array("B", padded.tobytes())
    return Message(height=pixels.shape[0], width=pixels.shape[1], encoding=encoding, step=padded.shape[1], data=data)


def joints(name: list[str], position: list[float]) -> Any:
    return Message(name=name, position=array("d", position))


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
    assert (rgb_of(checked_image(image(encoding, pixels, padding))) == PIXELS).all()


def test_a_grey_image_has_three_equal_channels() -> None:
    assert (rgb_of(image("mono8", PIXELS[:, :, :1], 2)) == PIXELS[:, :, :1]).all()


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (image("16UC1", np.zeros((4, 5, 2), np.uint8)), "encoding '16UC1'"),
        (image("rgb8", np.zeros((4, 5, 1), np.uint8)), "a row takes 15"),
        (Message(encoding="rgb8", height=0, width=0, step=0, data=b""), "0x0 pixels"),
        (Message(encoding="rgb8", height=4, width=5, step=15, data=b""), "0 bytes of data"),
    ],
)
def test_an_image_that_is_not_what_it_says_is_refused(message: Any, named: str) -> None:
    with pytest.raises(FlashrtError, match=named) as refused:
        checked_image(message)
    assert refused.value.code is ErrorCode.BAD_OBSERVATION


def test_joints_are_selected_by_name() -> None:
    state = joints(["b", "spare", "a"], [2.0, 9.0, 1.0])
    assert joints_of(state, ["a", "b"]).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("names", "positions", "named"),
    [
        (["a"], [1.0], "joint 'b' is missing; the message names a"),
        (["a", "b"], [1.0], "1 positions for 2 joint names"),
        (["a", "b"], [], "0 positions for 2 joint names"),
        (["a", "b", "a"], [1.0, 2.0, 3.0], "joint 'a' is named twice"),
        (["a", "b"], [1.0, float("nan")], "joint 'b' is nan"),
        (["a", "b"], [float("inf"), 1.0], "joint 'a' is inf"),
    ],
)
def test_joints_that_are_not_whole_are_refused(names: list[str], positions: list[float], named: str) -> None:
    with pytest.raises(FlashrtError, match=named):
        joints_of(joints(names, positions), ["a", "b"])
