# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A small picture of rates over a number of tries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PIL import Image

from flashrt_ros.demo.canvas import COOL, DIM, GOOD, LINE, MIXED, PANEL, TEXT, VIOLET, Canvas

_SCALE = 2.0
_WIDTH, _HEIGHT = 560.0, 360.0
_LEFT, _TOP, _RIGHT, _BOTTOM = 64.0, 70.0, 540.0, 300.0
_COLOURS = (GOOD, MIXED, COOL, VIOLET)


def draw_rates(title: str, below: str, curves: Mapping[str, Sequence[tuple[int, float]]]) -> Image.Image:
    """Draw a curve a name, through points of a number of tries and a rate from 0 to 1.

    Args:
        title: above.
        below: what the numbers of tries are.
        curves: points in the order of their numbers, which are powers of two; four curves at most.
    """
    canvas = Canvas.make(_WIDTH, _HEIGHT, _SCALE)
    canvas.text(20, 24, title, TEXT, 17)
    canvas.box((_LEFT, _TOP, _RIGHT, _BOTTOM), PANEL)
    numbers = sorted({number for points in curves.values() for number, _ in points})

    def x(number: int) -> float:
        return _LEFT + 24 + (_RIGHT - _LEFT - 48) * numbers.index(number) / max(1, len(numbers) - 1)

    def y(rate: float) -> float:
        return _BOTTOM - 8 - (_BOTTOM - _TOP - 20) * rate

    for percent in range(0, 101, 25):
        canvas.line([(_LEFT, y(percent / 100)), (_RIGHT, y(percent / 100))], LINE)
        canvas.text(_LEFT - 8, y(percent / 100), f"{percent} %", DIM, 12, "rm")
    for number in numbers:
        canvas.text(x(number), _BOTTOM + 14, str(number), DIM, 12, "mm")
    canvas.text((_LEFT + _RIGHT) / 2, _BOTTOM + 36, below, DIM, 12, "mm")
    left = 20.0
    for (name, points), colour in zip(curves.items(), _COLOURS, strict=False):
        places = [(x(number), y(rate)) for number, rate in points]
        canvas.line(places, colour, 2.5)
        for place in places:
            canvas.dot(*place, 4, colour)
        canvas.dot(left + 5, 50, 4, colour)
        left += 16 + canvas.text(left + 14, 50, name, TEXT, 12) + 18
    return canvas.image
