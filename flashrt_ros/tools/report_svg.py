# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Plots as SVG text: axes, lines, points and labels, and nothing that is fetched from anywhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

Point = tuple[float, float]

_LETTER = 6.5
"""Pixels that a letter takes at most, on average."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 24, 30


class Plot:
    """A drawing of `width` x `height` pixels over a range of x and of y."""

    def __init__(
        self, title: str, x: tuple[float, float], y: tuple[float, float], *, width: int = 860, height: int = 200
    ) -> None:
        """A range without extent is widened."""
        self._x, self._y = _widened(*x), _widened(*y)
        self._width, self._height = width, height
        self._parts = [f'<text class="title" x="{_LEFT}" y="15">{escape(title)}</text>']

    def x_axis(self, unit: str) -> None:
        """Draw grid lines at round numbers of x."""
        bottom, right = self._height - _BOTTOM, self._width - _RIGHT
        for value in ticks(*self._x):
            at = self._at_x(value)
            self._parts.append(f'<path class="grid" d="M{at:.1f} {_TOP}V{bottom}"/>')
            self._parts.append(f'<text class="x" x="{at:.1f}" y="{bottom + 13}">{value:g}</text>')
        self._parts.append(f'<text class="y" x="{right}" y="{bottom + 26}">{escape(unit)}</text>')

    def y_axis(self, unit: str) -> None:
        """Draw grid lines at round numbers of y."""
        for value in ticks(*self._y):
            self.lane(value, f"{value:g}")
        self._parts.append(f'<text class="y" x="{_LEFT - 5}" y="15">{escape(unit)}</text>')

    def lines(self, pieces: Iterable[Sequence[Point]], style: str) -> None:
        """Draw lines that are not joined, all of one class."""
        path = "".join(
            "".join(f"{'L' if n else 'M'}{self._at_x(x):.1f} {self._at_y(y):.1f}" for n, (x, y) in enumerate(piece))
            for piece in pieces
        )
        if path:
            self._parts.append(f'<path class="{style}" d="{path}"/>')

    def points(self, points: Iterable[Point], style: str, labels: Iterable[str] = ()) -> None:
        """Draw dots; a label shows where the pointer rests."""
        texts = iter(labels)
        for x, y in points:
            label = next(texts, "")
            inside = f"<title>{escape(label)}</title>" if label else ""
            self._parts.append(
                f'<circle class="{style}" cx="{self._at_x(x):.1f}" cy="{self._at_y(y):.1f}" r="3">{inside}</circle>'
            )

    def bar(self, begin: float, end: float, y: float, style: str, label: str) -> None:
        """Draw a bar from `begin` to `end` around `y`."""
        left, right = self._at_x(begin), self._at_x(end)
        self._parts.append(
            f'<rect class="{style}" x="{left:.1f}" y="{self._at_y(y) - 6:.1f}" width="{max(right - left, 1):.1f}" '
            f'height="12"><title>{escape(label)}</title></rect>'
        )

    def labels(self, points: Iterable[Point], labels: Iterable[str]) -> None:
        """Write texts above points from left to right; one that would cover the one before is left out."""
        free = 0.0
        for (x, y), label in zip(points, labels, strict=True):
            at = self._at_x(x)
            if at >= free:
                self._parts.append(f'<text x="{at:.1f}" y="{self._at_y(y) - 7:.1f}">{escape(label)}</text>')
                free = at + _LETTER * (len(label) + 1)

    def lane(self, y: float, name: str) -> None:
        """Name a horizontal lane, and draw its line."""
        at = self._at_y(y)
        self._parts.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{self._width - _RIGHT}"/>')
        self._parts.append(f'<text class="y" x="{_LEFT - 5}" y="{at + 3:.1f}">{escape(name)}</text>')

    def svg(self) -> str:
        """The drawing."""
        size = f'viewBox="0 0 {self._width} {self._height}" width="{self._width}" height="{self._height}"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>{"".join(self._parts)}</svg>'

    def _at_x(self, value: float) -> float:
        low, high = self._x
        return _LEFT + (value - low) / (high - low) * (self._width - _LEFT - _RIGHT)

    def _at_y(self, value: float) -> float:
        low, high = self._y
        return self._height - _BOTTOM - (value - low) / (high - low) * (self._height - _TOP - _BOTTOM)


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round numbers from `low` to `high`, about so many: steps of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step)
    return [n * step for n in range(first, math.floor(high / step) + 1)]


def extent(values: Iterable[float]) -> tuple[float, float]:
    """The least and the largest; (0, 1) of none."""
    known = list(values)
    return (min(known), max(known)) if known else (0.0, 1.0)


def _widened(low: float, high: float) -> tuple[float, float]:
    margin = (high - low) * 0.03 or max(abs(low), 1.0) * 0.05
    return low - margin, high + margin
