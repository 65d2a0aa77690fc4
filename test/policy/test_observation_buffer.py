# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable

import pytest

from flashrt_ros.policy.observation_buffer import ObservationBuffer, Part
from flashrt_ros.runtime.errors import FlashrtError

SECOND = 1_000_000_000
AGE = SECOND // 10


@pytest.fixture
def buffer() -> ObservationBuffer:
    """Both parts at 5.00 s and 5.05 s."""
    made = ObservationBuffer([Part("front", "camera/front", AGE), Part("state", "joint_states", AGE)])
    for number, stamp in enumerate((5 * SECOND, 5 * SECOND + AGE // 2)):
        made.add("front", stamp, f"image {number}")
        made.add("state", stamp, f"joints {number}")
    return made


def test_the_newest_of_each_part_make_an_observation(buffer: ObservationBuffer) -> None:
    buffer.add("state", 5 * SECOND + 7, "late joints")
    found = buffer.newest(after=4 * SECOND, now=5 * SECOND + AGE)
    assert found == {"front": (5 * SECOND + AGE // 2, "image 1"), "state": (5 * SECOND + 7, "late joints")}


def test_an_instant_is_found_among_newer_ones(buffer: ObservationBuffer) -> None:
    assert buffer.at(5 * SECOND, after=0) == {"front": (5 * SECOND, "image 0"), "state": (5 * SECOND, "joints 0")}


def test_a_repeated_instant_takes_the_place_of_the_first(buffer: ObservationBuffer) -> None:
    buffer.add("front", 5 * SECOND + AGE // 2, "again")
    assert buffer.newest(0, 5 * SECOND)["front"][1] == "again"
    assert len(buffer.parts["front"].values) == 2


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda b: b.newest(5 * SECOND + AGE // 2, 5 * SECOND), "state .*: nothing stamped after the gate closed"),
        (lambda b: b.newest(0, 5 * SECOND + 2 * AGE), "front .camera/front.: is 0.150 s old, 0.1 s are allowed"),
        (lambda b: b.newest(0, 4 * SECOND), "is stamped 1.050 s in the future"),
        (lambda b: b.at(6 * SECOND, 0), "front .*: nothing stamped 6.000 s has come"),
        (lambda b: b.at(5 * SECOND, 5 * SECOND), "not after the gate closed at 5.000 s"),
        (lambda b: (b.clear(), b.newest(0, 5 * SECOND)), "front .*: nothing has come; state .*: nothing has come"),
        (
            lambda b: (b.refuse("front", "encoding 'x'"), b.newest(0, 5 * SECOND + 2 * AGE)),
            "the newest message was refused: encoding 'x'",
        ),
    ],
)
def test_what_lacks_is_named(
    buffer: ObservationBuffer, change: Callable[[ObservationBuffer], object], named: str
) -> None:
    with pytest.raises(FlashrtError, match=named):
        change(buffer)


def test_refusals_are_counted_and_leave_the_value_before(buffer: ObservationBuffer) -> None:
    buffer.refuse("front", "too short")
    part = buffer.parts["front"]
    assert (part.received, part.refused, part.refusal) == (3, 1, "too short")
    assert buffer.newest(0, 5 * SECOND)["front"][1] == "image 1"
    buffer.add("front", 6 * SECOND, "good again")
    assert part.refusal == ""
