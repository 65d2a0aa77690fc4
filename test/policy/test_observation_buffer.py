# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable

import pytest

from flashrt_ros.policy.observation_buffer import ObservationBuffer, Part, Taken
from flashrt_ros.runtime.errors import FlashrtError

SECOND = 1_000_000_000
AGE = SECOND // 10
MS = 1_000_000


@pytest.fixture
def buffer() -> ObservationBuffer:
    """Both parts at 5.00 s and 5.05 s."""
    made = ObservationBuffer([Part("front", "camera/front", AGE), Part("state", "joint_states", AGE)])
    for number, stamp in enumerate((5 * SECOND, 5 * SECOND + AGE // 2)):
        made.add("front", stamp, f"image {number}")
        made.add("state", stamp, f"joints {number}")
    return made


def aligned(align: str) -> ObservationBuffer:
    """A camera each 33 ms, and 1 kHz of joints aligned as named; both up to 5.132 s."""
    made = ObservationBuffer([Part("front", "camera", AGE), Part("state", "joint_states", AGE, align, kept=512)])
    for k in range(4):
        made.add("front", 5 * SECOND + 33 * k * MS, f"image {k}")
    for k in range(133):
        made.add("state", 5 * SECOND + k * MS, f"joints {k}")
    return made


def test_the_newest_of_each_part_make_an_observation(buffer: ObservationBuffer) -> None:
    buffer.add("state", 5 * SECOND + AGE // 2 + 7, "newer joints")
    found = buffer.newest(after=4 * SECOND, now=5 * SECOND + AGE)
    newer = 5 * SECOND + AGE // 2 + 7
    assert found == {"front": (5 * SECOND + AGE // 2, "image 1"), "state": (newer, "newer joints")}


def test_a_message_that_was_overtaken_is_not_the_newest(buffer: ObservationBuffer) -> None:
    buffer.add("state", 5 * SECOND + 7, "late joints")
    assert buffer.newest(after=0, now=5 * SECOND + AGE)["state"][1] == "joints 1"
    assert buffer.at(5 * SECOND, after=0)["state"][1] == "joints 0"


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
        (
            lambda b: (b.clear(), b.add("front", 0, ""), b.newest(-1, 5 * SECOND)),
            "front .*: its driver sets no stamp; .* stamp: receive",
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


def test_a_value_that_cannot_be_used_is_taken_back(buffer: ObservationBuffer) -> None:
    buffer.take_back("front", 5 * SECOND + AGE // 2, "broken off")
    part = buffer.parts["front"]
    assert (part.refused, part.refusal, part.stamp) == (1, "broken off", 5 * SECOND)


def test_a_frozen_stamp_becomes_too_old_and_its_camera_is_named(buffer: ObservationBuffer) -> None:
    for late in range(50, 651, 50):
        now = 5 * SECOND + late * MS
        buffer.add("front", 5 * SECOND + AGE // 2, "the same again")
        buffer.add("state", now, "joints")
        if late <= 150:
            buffer.newest(0, now)
        else:
            with pytest.raises(FlashrtError, match=r"^front \(camera/front\): is .* s old, 0\.1 s are allowed$"):
                buffer.newest(0, now)


def test_hold_takes_the_newest_of_each_part_and_says_how_far_apart_they_are() -> None:
    buffer = aligned("hold")
    found = buffer.newest(0, 5 * SECOND + 140 * MS)
    assert (found["front"][1], found["state"][1]) == ("image 3", "joints 132")
    assert buffer.parts["front"].taken == Taken(5 * SECOND + 99 * MS, age=41 * MS, skew=0)
    assert buffer.parts["state"].taken == Taken(5 * SECOND + 132 * MS, age=8 * MS, skew=33 * MS)


def test_asof_takes_what_was_measured_when_the_image_was() -> None:
    buffer = aligned("asof")
    found = buffer.newest(0, 5 * SECOND + 140 * MS)
    assert (found["front"][1], found["state"][1]) == ("image 3", "joints 99")
    assert buffer.parts["state"].taken == Taken(5 * SECOND + 99 * MS, age=41 * MS, skew=0)


def test_asof_takes_nothing_newer_and_nothing_too_old() -> None:
    buffer = ObservationBuffer([Part("front", "camera", AGE), Part("state", "joint_states", AGE, "asof")])
    buffer.add("front", 5 * SECOND, "image")
    buffer.add("state", 5 * SECOND + 20 * MS, "joints")
    with pytest.raises(FlashrtError, match=r"state .*: nothing as old as the oldest part, stamped 5\.000 s"):
        buffer.newest(0, 5 * SECOND + 30 * MS)
    buffer.add("state", 5 * SECOND - 80 * MS, "old joints")
    with pytest.raises(FlashrtError, match=r"state .*: is 0\.110 s old"):
        buffer.newest(0, 5 * SECOND + 30 * MS)
    assert buffer.newest(0, 5 * SECOND + 20 * MS)["state"][1] == "old joints"


def test_asof_follows_the_slowest_part_whatever_its_alignment() -> None:
    kinds = {"front": "hold", "arm": "asof", "hand": "asof"}
    buffer = ObservationBuffer([Part(key, key, AGE, align, kept=512) for key, align in kinds.items()])
    buffer.add("front", 5 * SECOND + 50 * MS, "image")
    buffer.add("hand", 5 * SECOND + 20 * MS, "slow")
    for k in range(60):
        buffer.add("arm", 5 * SECOND + k * MS, f"joints {k}")
    assert buffer.newest(0, 5 * SECOND + 60 * MS)["arm"][1] == "joints 20"


def test_drop_takes_each_value_once() -> None:
    buffer = aligned("drop")
    now = 5 * SECOND + 140 * MS
    assert buffer.newest(0, now)["state"][1] == "joints 132"
    with pytest.raises(FlashrtError, match=r"state .*: nothing has come since the observation before"):
        buffer.newest(0, now)
    buffer.add("state", now, "new joints")
    assert buffer.newest(0, now)["state"][1] == "new joints"


@pytest.mark.parametrize("back", [True, False])
def test_a_clock_that_is_set_leaves_nothing_of_the_other_time(back: bool) -> None:
    buffer = aligned("drop")
    buffer.newest(0, 5 * SECOND + 140 * MS)
    now = (-5 if back else 15) * SECOND + 5 * SECOND
    buffer.time_jumped(now)
    assert all(not part.values and part.taken is None for part in buffer.parts.values())
    buffer.add("front", now, "image")
    buffer.add("state", now, "joints")
    assert buffer.newest(-1, now) == {"front": (now, "image"), "state": (now, "joints")}


def test_a_jump_of_the_clock_leaves_what_came_before_its_news() -> None:
    buffer = aligned("hold")
    buffer.add("state", 4 * SECOND, "joints of the new time")
    buffer.time_jumped(4 * SECOND)
    assert [part.stamp for part in buffer.parts.values()] == [None, 4 * SECOND]


def test_a_clock_set_back_is_told_by_the_stamps_too() -> None:
    buffer = aligned("hold")
    now = 4 * SECOND
    buffer.add("front", now, "image")
    buffer.add("state", now, "joints")
    assert buffer.newest(0, now) == {"front": (now, "image"), "state": (now, "joints")}


def test_only_so_many_values_are_held() -> None:
    buffer = aligned("hold")
    for k in range(1000):
        buffer.add("state", 6 * SECOND + k, k)
        buffer.add("front", 6 * SECOND + k, k)
    assert [len(part.values) for part in buffer.parts.values()] == [8, 512]
    assert buffer.parts["state"].stamp == 6 * SECOND + 999
