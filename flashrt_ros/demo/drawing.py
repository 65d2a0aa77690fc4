# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A plain renderer for machines without OpenGL: the outline of each shape, filled, from the farthest to the nearest."""

from __future__ import annotations

import math

import mujoco
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from flashrt_ros.demo.world import World

_BACKGROUND = (18, 20, 24)
_SIDE_SHADE = 0.65
_TOP_SHADE = 0.95
_NEAR = 0.01  # m; nothing nearer to the camera is drawn
_OVERSAMPLING = 2
_RING = 16  # corners that stand for a circle

_Points = NDArray[np.float64]


class DrawnRenderer:
    """Draws boxes, cylinders, capsules and spheres as filled convex outlines with Pillow.

    Each is convex, so its picture is the convex hull of its projected corners. Shapes hide one another by the distance
    of their centres, which is right as long as they do not interlock.
    """

    name = "drawn"

    def __init__(self, world: World, width: int, height: int, why: str = "") -> None:
        self.why = why
        self._world = world
        self._size = (width, height)
        model = world.model
        self._shapes = [_shape(model.geom_type[geom], model.geom_size[geom]) for geom in range(model.ngeom)]

    def render(self, view: str) -> NDArray[np.uint8]:
        """See flashrt_ros.demo.render.Renderer."""
        width, height = (_OVERSAMPLING * side for side in self._size)
        model, data = self._world.model, self._world.data
        camera = model.camera(view).id
        eye, axes = data.cam_xpos[camera], data.cam_xmat[camera].reshape(3, 3)
        focal = 0.5 * height / math.tan(0.5 * math.radians(model.cam_fovy[camera]))
        picture = Image.new("RGB", (width, height), _BACKGROUND)
        draw = ImageDraw.Draw(picture)
        for geom in self._back_to_front(eye):
            turn, place = data.geom_xmat[geom].reshape(3, 3), data.geom_xpos[geom]
            body, top = self._shapes[geom]
            parts = [(body, _SIDE_SHADE)]
            if top is not None and turn[:, 2] @ (eye - (turn @ top.mean(axis=0) + place)) > 0:
                parts.append((top, _TOP_SHADE))
            for corners, shade in parts:
                seen = _clip((corners @ turn.T + place - eye) @ axes)
                if len(seen) < 3:
                    continue
                scale = focal / -seen[:, 2]
                x, y = 0.5 * width + scale * seen[:, 0], 0.5 * height - scale * seen[:, 1]
                outline = _hull(sorted(zip(x.tolist(), y.tolist(), strict=True)))
                if len(outline) >= 3:
                    draw.polygon(outline, fill=self._colour(geom, shade))
        return np.asarray(picture.reduce(_OVERSAMPLING))

    def close(self) -> None:
        """See flashrt_ros.demo.render.Renderer."""

    def _back_to_front(self, eye: _Points) -> list[int]:
        """Return the shapes in drawing order: those of the room (floor, table) as in the model, then by distance."""
        model = self._world.model
        away = np.linalg.norm(self._world.data.geom_xpos - eye, axis=1)
        room = [geom for geom in range(model.ngeom) if model.geom_bodyid[geom] == 0]
        things = [geom for geom in range(model.ngeom) if model.geom_bodyid[geom] != 0]
        return room + sorted(things, key=lambda geom: -float(away[geom]))

    def _colour(self, geom: int, shade: float) -> tuple[int, int, int]:
        model = self._world.model
        material = model.geom_matid[geom]
        light = min(1.0, shade + float(model.mat_emission[material]))
        red, green, blue = (round(255 * light * float(part)) for part in model.mat_rgba[material, :3])
        return red, green, blue


def _shape(kind: int, size: _Points) -> tuple[_Points, _Points | None]:
    """Return a shape's corners in its own frame, [n, 3], and those of its top face if it has a flat one."""
    turns = np.arange(_RING) * (2 * math.pi / _RING)
    circle = np.stack([np.cos(turns), np.sin(turns), np.zeros(_RING)], axis=1)
    if kind == mujoco.mjtGeom.mjGEOM_BOX:
        corners = np.array([(x, y, z) for z in (-1, 1) for y in (-1, 1) for x in (-1, 1)]) * size
        return corners, corners[4:]
    if kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        radius, half, _ = size
        top = circle * radius + (0, 0, half)
        return np.concatenate([circle * radius - (0, 0, half), top]), top
    if kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        radius, half, _ = size
        ball = radius * np.concatenate([circle, circle[:, [0, 2, 1]], circle[:, [2, 0, 1]]])
        lift = np.array([0.0, 0.0, half])
        return np.concatenate([ball - lift, ball + lift]), None
    raise ValueError(f"cannot draw a shape of type {mujoco.mjtGeom(kind).name}")


def _clip(corners: _Points) -> _Points:
    """Return corners whose hull is the part of `corners`' hull that lies before the camera (z < -_NEAR)."""
    before = corners[:, 2] < -_NEAR
    if before.all():
        return corners
    ahead, behind = corners[before], corners[~before]
    if not len(ahead):
        return ahead
    share = (-_NEAR - ahead[:, None, 2]) / (behind[None, :, 2] - ahead[:, None, 2])
    crossings = ahead[:, None] + share[..., None] * (behind[None] - ahead[:, None])
    return np.concatenate([ahead, crossings.reshape(-1, 3)])


def _hull(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the corners of the convex hull of sorted points, in order (A. M. Andrew's monotone chain, 1979)."""

    def chain(ordered: list[tuple[float, float]]) -> list[tuple[float, float]]:
        kept: list[tuple[float, float]] = []
        for x, y in ordered:
            while len(kept) > 1:
                (ax, ay), (bx, by) = kept[-2:]
                if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                    break
                kept.pop()
            kept.append((x, y))
        return kept[:-1]

    return chain(points) + chain(points[::-1])
