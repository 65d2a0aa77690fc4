# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Pictures of saved states of the task, as the cameras would see them with more pixels."""

from __future__ import annotations

from PIL import Image

from flashrt_ros.demo.render import open_renderer
from flashrt_ros.demo.task import Scenario, Task
from flashrt_ros.demo.world import World

_OVERSAMPLING = 2
_TOP, _BOTTOM = 0.02, 0.90
"""Part of the square view that is shown."""
_TABLE = (0.10, 0.52, 0.90, 0.92)
"""Part of it that shows the buttons: left, top, right, bottom."""


class Camera:
    """Looks at states of the task."""

    def __init__(self, scenario: Scenario, seed: int, width: int, thumbnail: int, renderer: str = "auto") -> None:
        """`width` of a picture and of a thumbnail, in pixels."""
        self._task = Task(World(), scenario, seed)
        side = _OVERSAMPLING * width
        self._renderer = open_renderer(self._task.world, renderer, side, side)
        self._part = (0, round(side * _TOP), side, round(side * _BOTTOM))
        left, top, right, bottom = (share * side for share in _TABLE)
        self._table = (left, top, right, bottom)
        self.size = (width, (self._part[3] - self._part[1]) // _OVERSAMPLING)
        """Of a picture: width and height in pixels."""
        self.thumbnail_size = (thumbnail, round(thumbnail * (bottom - top) / (right - left)))
        """Of a thumbnail: width and height in pixels."""
        self._pictures: dict[tuple[bytes, str], Image.Image] = {}
        self._thumbnails: dict[bytes, Image.Image] = {}

    def picture(self, state: bytes, view: str = "front") -> Image.Image:
        """Return what a state looks like, from one of flashrt_ros.demo.render.VIEWS."""
        key = (state, view)
        if key not in self._pictures:
            seen = self._see(state, view).reduce(_OVERSAMPLING, self._part)
            self._pictures[key] = seen.crop((0, 0, *self.size))
        return self._pictures[key]

    def thumbnail(self, state: bytes) -> Image.Image:
        """Return what the buttons look like, small."""
        if state not in self._thumbnails:
            whole = self._see(state, "front")
            self._thumbnails[state] = whole.resize(self.thumbnail_size, Image.Resampling.LANCZOS, self._table)
        return self._thumbnails[state]

    def close(self) -> None:
        """Free the renderer."""
        self._renderer.close()

    def _see(self, state: bytes, view: str) -> Image.Image:
        self._task.load(state)
        return Image.fromarray(self._renderer.render(view))
