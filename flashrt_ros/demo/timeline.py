# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A picture of what the nodes did during the story, on the wall clock, and of the rollback more closely."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from statistics import median

from PIL import Image

from flashrt_ros.demo.camera import Camera
from flashrt_ros.demo.canvas import (
    BACKGROUND,
    BAD,
    COOL,
    DIM,
    FAINT,
    GOOD,
    LINE,
    MIXED,
    PANEL,
    TEXT,
    VIOLET,
    Canvas,
    Colour,
)
from flashrt_ros.demo.task import LIGHT_SPACING, LIT_TICKS, Scenario
from flashrt_ros.demo.witness import Heard
from flashrt_ros.demo.world import BUTTONS
from flashrt_ros.node.stamps import to_nanoseconds

Bar = tuple[float, float, Colour, str]
"""Begin, end (s), colour, label."""

_SCALE = 2.0
STILL_PIXELS = 328
"""Width of the pictures of the world in it."""
_WIDTH, _LEFT, _RIGHT = 1060.0, 150.0, 1040.0
_ROW, _BAR = 34.0, 16.0
_STILLS_TOP = 74.0
_ROWS = {
    "light": "burns for a second",
    "inference": "asked to answered",
    "verbs": "as their answers say",
    "gate": "open: commands flow",
    "commands": "grey: the arm is held",
}
_CLOSE = ("inference", "verbs", "gate", "commands")
_LIGHTS = {"red": BAD, "green": GOOD, "blue": COOL, "yellow": MIXED}


class Axis:
    """Seconds to the right."""

    def __init__(self, canvas: Canvas, begin: float, end: float) -> None:
        self._canvas = canvas
        self.begin, self.end = begin, end

    def x(self, time: float) -> float:
        """Where a moment is; those outside are at the edge."""
        inside = min(max(time, self.begin), self.end)
        return _LEFT + (_RIGHT - _LEFT) * (inside - self.begin) / (self.end - self.begin)

    def draw(self, top: float, bottom: float, step: float, origin: float, unit: float, name: str) -> None:
        """Draw the ground, and lines every `step` seconds, labelled as multiples of `unit` from `origin` on."""
        self._canvas.box((_LEFT, top, _RIGHT, bottom), PANEL)
        count = int((self.end - origin) / step)
        for index in range(int((self.begin - origin) / step), count + 1):
            at = origin + index * step
            if at < self.begin - 1e-9:
                continue
            self._canvas.line([(self.x(at), top), (self.x(at), bottom)], LINE)
            self._canvas.text(self.x(at), bottom + 10, f"{index * step / unit:g}", DIM, 11, "mm")
        self._canvas.text(_RIGHT, bottom + 25, name, DIM, 12, "rm")


def draw_timeline(heard: Heard, scenario: Scenario, camera: Camera, pushed: range, retry: int) -> Image.Image:
    """Draw it.

    Args:
        heard: what happened.
        scenario: of the episode.
        camera: for pictures of STILL_PIXELS.
        pushed: ticks of the push.
        retry: tick of the retry's first observation.
    """
    rows_top = _STILLS_TOP + camera.size[1] / _SCALE + 30
    rows_bottom = rows_top + len(_ROWS) * _ROW
    zoom_top = rows_bottom + 78
    zoom_bottom = zoom_top + len(_CLOSE) * _ROW
    canvas = Canvas.make(_WIDTH, zoom_bottom + 46, _SCALE)
    times = heard.command_times
    begin, end = min(times.values()), max(times.values())
    canvas.text(20, 26, "A light, a press that fails, a rollback, a retry", TEXT, 20)
    spans = [span.end - span.begin for span in heard.inferences()]
    figures = f"{len(spans)} inferences, median {_milliseconds(median(spans))}, longest {_milliseconds(max(spans))}"
    canvas.text(20, 50, f"What the nodes did, on the wall clock. The arm is simulated. {figures}.", DIM, 13)
    whole = Axis(canvas, begin - 0.1, end + 0.15)
    rows = Rows(heard, scenario)
    _stills(canvas, whole, heard, camera, pushed, retry)
    whole.draw(rows_top, rows_bottom, step=1.0, origin=begin, unit=1.0, name="s")
    rows.draw(canvas, whole, rows_top, _ROWS)
    rollback = next(span for span in heard.verbs if span.name == "rollback")
    zoom = Axis(canvas, rollback.begin - 0.25, times[retry] + 0.25)
    _connect(canvas, whole, zoom, rows_bottom, zoom_top)
    canvas.text(20, zoom_top - 20, "The rollback, closely", TEXT, 15)
    zoom.draw(zoom_top, zoom_bottom, step=0.1, origin=rollback.begin, unit=0.001, name="ms from the call")
    rows.draw(canvas, zoom, zoom_top, _CLOSE)
    return canvas.image


def _stills(canvas: Canvas, axis: Axis, heard: Heard, camera: Camera, pushed: range, retry: int) -> None:
    """Show the world at some moments, above when they were."""
    last = max(heard.states)
    moments = (
        (9, "a light"),
        (pushed.start - 1, "a press"),
        ((pushed.start + pushed.stop) // 2, "pushed away"),
        (retry, "rolled back"),
        (last, "pressed"),
    )
    width, height = (side / _SCALE for side in camera.size)
    room = (_RIGHT - _LEFT - len(moments) * width) / (len(moments) - 1)
    for index, (tick, words) in enumerate(moments):
        left, top = _LEFT + index * (width + room), _STILLS_TOP
        canvas.paste(camera.picture(heard.states[tick]), left, top)
        canvas.text(left + width / 2, top + height + 9, words, TEXT, 12, "mm")
        at = heard.command_times.get(tick, max(heard.command_times.values()))
        canvas.line([(left + width / 2, top + height + 17), (axis.x(at), top + height + 28)], LINE)


def _connect(canvas: Canvas, whole: Axis, zoom: Axis, top: float, bottom: float) -> None:
    """Mark on the whole what is shown closely."""
    for at, x in ((zoom.begin, _LEFT), (zoom.end, _RIGHT)):
        canvas.line([(whole.x(at), top), (whole.x(at), top + 22), (x, bottom - 2)], DIM)


class Rows:
    """The bars of everything that happened."""

    def __init__(self, heard: Heard, scenario: Scenario) -> None:
        self._heard = heard
        self._scenario = scenario

    def draw(self, canvas: Canvas, axis: Axis, top: float, rows: Collection[str]) -> None:
        """Draw the bars of some rows that an axis shows; those of _CLOSE all have labels."""
        for index, row in enumerate(rows):
            middle = top + (index + 0.5) * _ROW
            canvas.text(_LEFT - 12, middle - 6, row, TEXT, 14, "rm")
            canvas.text(_LEFT - 12, middle + 9, _ROWS[row], DIM, 10.5, "rm")
            for begin, end, colour, words in getattr(self, f"_{row}")():
                if begin < axis.end and end > axis.begin:
                    shown = words if rows is _CLOSE or row in ("light", "verbs") else ""
                    _bar(canvas, (axis.x(begin), axis.x(end)), middle, colour, shown)

    def _light(self) -> Iterator[Bar]:
        times = self._heard.command_times
        for index, button in enumerate(self._scenario.lights):
            first = self._scenario.first_light + index * LIGHT_SPACING
            name = BUTTONS[button]
            yield times[first], times[first + LIT_TICKS], _LIGHTS[name], name

    def _inference(self) -> Iterator[Bar]:
        for span in self._heard.inferences():
            yield span.begin, span.end, COOL, _milliseconds(span.end - span.begin)

    def _verbs(self) -> Iterator[Bar]:
        for span in self._heard.verbs:
            taken = to_nanoseconds(span.answer.taken) * 1e-9
            yield span.begin, span.begin + taken, VIOLET, f"{span.name} {_milliseconds(taken)}"

    def _gate(self) -> Iterator[Bar]:
        opened: float | None = None
        for at, is_open in self._heard.gate:
            if is_open and opened is None:
                opened = at
            elif not is_open and opened is not None:
                yield opened, at, GOOD, "open"
                opened = None
        if opened is not None:
            yield opened, max(self._heard.command_times.values()), GOOD, "open"

    def _commands(self) -> Iterator[Bar]:
        for tick, at in self._heard.command_times.items():
            yield at, at, MIXED if tick in self._heard.active else FAINT, ""


def _bar(canvas: Canvas, sides: tuple[float, float], middle: float, colour: Colour, words: str) -> None:
    left, right = sides[0], max(sides[1], sides[0] + 2)
    canvas.box((left, middle - _BAR / 2, right, middle + _BAR / 2), colour, radius=2)
    if words and canvas.width(words, 12) < right - left - 8:
        canvas.text((left + right) / 2, middle, words, BACKGROUND, 12, "mm")
    elif words:
        canvas.text(right + 5, middle, words, TEXT, 12, "lm")


def _milliseconds(seconds: float) -> str:
    value = 1e3 * seconds
    return f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"
