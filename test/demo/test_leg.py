# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from flashrt_ros.demo.leg import Leg, differences

LEG = Leg((b"chunk 1", b"chunk 2"), (b"a", b"b", b"c"), "d1")


def test_equal_bytes_have_no_differences() -> None:
    assert differences(LEG, Leg((b"chunk 1", b"chunk 2"), (b"a", b"b", b"c"), "d1")) == []


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (replace(LEG, chunks=(b"chunk 1", b"chunk 3")), "1 of 2 chunks, the first is number 2"),
        (replace(LEG, chunks=LEG.chunks[:1]), "2 chunks against 1"),
        (replace(LEG, commands=(b"a", b"x", b"y")), "2 of 3 joint commands, the first is number 2"),
        (replace(LEG, commands=(*LEG.commands, b"d")), "3 joint commands against 4"),
        (replace(LEG, digest="d2"), "state behind it: sha256 d1 against d2"),
        (replace(LEG, digest=""), "state behind it: sha256 d1 against none"),
    ],
)
def test_each_difference_is_told(other: Leg, words: str) -> None:
    assert differences(LEG, other) == [words]
