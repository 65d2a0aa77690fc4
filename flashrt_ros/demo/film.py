# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The film of the story: one past, and what comes of it when all, some or none of the memory is restored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from flashrt_ros.demo.camera import Camera
from flashrt_ros.demo.canvas import BAD, DIM, FAINT, GOOD, LINE, PANEL, TEXT, VIOLET, Canvas, Colour

PICTURE_WIDTH, THUMBNAIL_WIDTH = 288, 46
_PANEL_WIDTH, _GAP, _MARGIN = PICTURE_WIDTH, 12, 14
_WIDTH = 3 * _PANEL_WIDTH + 2 * _GAP + 2 * _MARGIN
_HEADER, _TITLE, _OUTCOME, _FOOTER = 66, 26, 28, 34
_STRIP_GAP, _LABEL = 3, 42
_TICK = 100  # ms
_STEPS = (
    "1  look: a button lights up and goes dark",
    "2  press it; somebody pushes the arm away",
    "3  roll the memory back to after the light",
    "4  look again, and retry",
)


@dataclass(frozen=True, slots=True)
class Branch:
    """One way to go on.

    Attributes:
        title: of the panel.
        colour: of the panel.
        states: of the task by tick, from the retry on.
        observed: ticks at which the policy looked.
        rows: what the KV rows remember to have seen, as states of the task.
        rest: what all other state remembers.
        verdict: what came of it.
        good: whether that is what was wanted.
    """

    title: str
    colour: Colour
    states: dict[int, bytes]
    observed: Sequence[int]
    rows: Sequence[bytes]
    rest: Sequence[bytes]
    verdict: str
    good: bool


@dataclass(frozen=True, slots=True)
class Past:
    """What all branches have in common.

    Attributes:
        instruction: what the policy was told.
        states: of the task by tick, up to the retry.
        observed: ticks at which the policy looked.
        boundary: the tick of the snapshot.
        pushed: ticks at which somebody pushes the arm.
        retry: the tick at which the branches part.
        rollback: how long the verb took, s.
    """

    instruction: str
    states: dict[int, bytes]
    observed: Sequence[int]
    boundary: int
    pushed: range
    retry: int
    rollback: float


@dataclass(frozen=True, slots=True)
class Shot:
    """What one panel shows."""

    title: str
    colour: Colour
    state: bytes
    rows: Sequence[bytes] = ()
    rest: Sequence[bytes] = ()
    note: str = ""
    note_colour: Colour = DIM
    pushed: bool = False
    step: int | None = None
    """Of the story, for the panel of the wrist camera."""


class Film:
    """Draws the frames."""

    def __init__(self, camera: Camera, past: Past, branches: Sequence[Branch]) -> None:
        """`camera` must have been made for pictures of PICTURE_WIDTH and thumbnails of THUMBNAIL_WIDTH."""
        self._camera = camera
        self._past = past
        self._branches = branches
        strips = 2 * (camera.thumbnail_size[1] + _STRIP_GAP) + _STRIP_GAP
        self._height = _HEADER + _TITLE + camera.size[1] + strips + _OUTCOME + _FOOTER

    def frames(self) -> Iterator[tuple[Image.Image, int]]:
        """Return each frame with its duration in ms."""
        yield from self._before()
        yield from self._parting()
        yield from self._after()

    def _before(self) -> Iterator[tuple[Image.Image, int]]:
        past = self._past
        for tick in range(min(past.states), past.retry):
            seen = [past.states[at] for at in past.observed if at <= tick]
            pushed = tick in past.pushed
            step = 0 if tick <= past.boundary else 1
            if step == 0:
                caption = "A button lights up for a second. The policy sees it, and has to remember it."
            elif tick < past.pushed.start:
                caption = "The light is out. The policy goes to press the button."
            else:
                caption = "Somebody pushes the arm away: the press fails."
            front = Shot("front camera", TEXT, past.states[tick], seen, seen, pushed=pushed)
            wrist = Shot("wrist camera", TEXT, past.states[tick], step=step)
            yield self._frame(caption, tick, [front, wrist]), _TICK

    def _parting(self) -> Iterator[tuple[Image.Image, int]]:
        past = self._past
        state, seen = past.states[past.retry], [past.states[at] for at in past.observed]
        shots = [Shot(branch.title, branch.colour, state, seen, seen) for branch in self._branches]
        took = f"{1e3 * past.rollback:.1f} ms"
        caption = f"The memory goes back to the boundary after the light ({took}). The arm stays where it is."
        yield self._frame(caption, past.retry, shots), 12 * _TICK
        shots = [Shot(branch.title, branch.colour, state, branch.rows, branch.rest) for branch in self._branches]
        yield self._frame(caption, past.retry, shots), 35 * _TICK

    def _after(self) -> Iterator[tuple[Image.Image, int]]:
        begin = self._past.retry
        end = max(max(branch.states) for branch in self._branches)
        for tick in range(begin, end + 1):
            shots = [self._branch_shot(branch, tick) for branch in self._branches]
            yield self._frame("A new observation, and a retry.", tick, shots), _TICK * (40 if tick == end else 1)

    def _branch_shot(self, branch: Branch, tick: int) -> Shot:
        last = max(branch.states)
        added = [branch.states[at] for at in branch.observed if at <= tick]
        over = tick >= last
        return Shot(
            branch.title,
            branch.colour,
            branch.states[min(tick, last)],
            [*branch.rows, *added],
            [*branch.rest, *added],
            note=branch.verdict if over else "",
            note_colour=GOOD if branch.good else BAD,
        )

    def _frame(self, caption: str, tick: int, shots: Sequence[Shot]) -> Image.Image:
        canvas = Canvas.make(_WIDTH, self._height)
        canvas.text(_MARGIN, 22, f'"{self._past.instruction}"', TEXT, 20)
        canvas.text(_WIDTH - _MARGIN, 22, f"{tick / 10:.1f} s", DIM, 16, "rm")
        canvas.text(_MARGIN, 48, caption, DIM, 16)
        whole = len(shots) * _PANEL_WIDTH + (len(shots) - 1) * _GAP
        left = (_WIDTH - whole) / 2
        for index, shot in enumerate(shots):
            self._panel(canvas, left + index * (_PANEL_WIDTH + _GAP), shot)
        legend = "Each small picture is an observation in memory: above in the KV rows, below in all other state."
        if len(shots) == len(self._branches):
            legend += " In the middle, that is from another episode."
        canvas.text(_MARGIN, self._height - _FOOTER / 2, legend, DIM, 13)
        return canvas.image

    def _panel(self, canvas: Canvas, left: float, shot: Shot) -> None:
        top, width = float(_HEADER), float(_PANEL_WIDTH)
        canvas.box((left - 4, top - 2, left + width + 4, self._height - _FOOTER), PANEL, radius=8)
        canvas.box((left - 4, top - 2, left + width + 4, top + 1), shot.colour)
        canvas.text(left + 4, top + _TITLE / 2 + 1, shot.title, shot.colour, 15)
        top += _TITLE
        canvas.paste(self._camera.picture(shot.state, "front" if shot.step is None else "wrist"), left, top)
        if shot.pushed:
            _push(canvas, left + 0.4 * width, top + 22)
        top += self._camera.size[1] + _STRIP_GAP
        if shot.step is None:
            self._memory(canvas, left, top, shot)
        else:
            _story(canvas, left, top, shot.step)

    def _memory(self, canvas: Canvas, left: float, top: float, shot: Shot) -> None:
        for name, seen in (("KV", shot.rows), ("other", shot.rest)):
            self._strip(canvas, left, top, name, seen)
            top += self._camera.thumbnail_size[1] + _STRIP_GAP
        canvas.text(left + 4, top + _OUTCOME / 2 - 1, shot.note, shot.note_colour, 15)

    def _strip(self, canvas: Canvas, left: float, top: float, name: str, seen: Sequence[bytes]) -> None:
        width, height = self._camera.thumbnail_size
        canvas.text(left + 4, top + height / 2, name, DIM, 12)
        left += _LABEL
        room = int((_PANEL_WIDTH - _LABEL + _STRIP_GAP) / (width + _STRIP_GAP))
        for index in range(room):
            x = left + index * (width + _STRIP_GAP)
            if index < len(seen):
                canvas.paste(self._camera.thumbnail(seen[-room:][index]), x, top)
            else:
                canvas.box((x, top, x + width - 1, top + height - 1), outline=LINE)


def _story(canvas: Canvas, left: float, top: float, step: int) -> None:
    for index, words in enumerate(_STEPS):
        canvas.text(left + 4, top + 10 + 19 * index, words, TEXT if index == step else FAINT, 13)


def _push(canvas: Canvas, x: float, y: float) -> None:
    """Draw an arrow in the direction of the push."""
    canvas.line([(x - 66, y), (x - 20, y)], VIOLET, 4)
    canvas.line([(x - 30, y - 9), (x - 17, y), (x - 30, y + 9)], VIOLET, 4)
    canvas.text(x - 74, y, "push", VIOLET, 16, "rm")


def write_gif(path: Path, frames: Sequence[tuple[Image.Image, int]]) -> None:
    """Write frames with their durations (ms) as a GIF that repeats.

    All share one palette, so that what does not move takes no room.
    """
    images = [image for image, _ in frames]
    palette = _palette(images)
    first, *rest = (image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images)
    durations = [duration for _, duration in frames]
    first.save(path, save_all=True, append_images=rest, duration=durations, loop=0, disposal=1)


def _palette(images: Sequence[Image.Image]) -> Image.Image:
    """Return an image with the palette of all; what is small and bright gets its colours too."""
    samples = [images[index * (len(images) - 1) // 11] for index in range(12)]
    bins = np.zeros(1 << 18, dtype=np.int64)
    for sample in samples:
        red, green, blue = np.moveaxis(np.asarray(sample, dtype=np.int64) >> 2, -1, 0)
        bins += np.bincount((red << 12 | green << 6 | blue).ravel(), minlength=len(bins))
    colours = np.flatnonzero(bins)
    # A colour counts by less than how often it occurs: median cut alone would drop lights and letters.
    weights = 8 + (0.1 * bins[colours] ** 0.6).astype(int)
    values = np.stack([colours >> 12, colours >> 6 & 63, colours & 63], axis=-1) * 4 + 2
    pixels = np.repeat(values, weights, axis=0).astype(np.uint8)
    return Image.fromarray(pixels[None]).quantize(256, dither=Image.Dither.NONE)
