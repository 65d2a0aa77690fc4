# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The two camera views of the demo's world, rendered by MuJoCo through EGL or drawn plainly without OpenGL."""

from __future__ import annotations

import os
import weakref
from ctypes import ArgumentError
from typing import TYPE_CHECKING, Protocol

import mujoco
import numpy as np
from numpy.typing import NDArray

from flashrt_ros.demo.drawing import DrawnRenderer
from flashrt_ros.demo.world import World
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

if TYPE_CHECKING:
    from mujoco.egl import GLContext

VIEWS = ("front", "wrist")
RENDERERS = ("auto", "egl", "drawn")

_COSTLY = (
    mujoco.mjtRndFlag.mjRND_SHADOW,
    mujoco.mjtRndFlag.mjRND_REFLECTION,
    mujoco.mjtRndFlag.mjRND_SKYBOX,
    mujoco.mjtRndFlag.mjRND_FOG,
    mujoco.mjtRndFlag.mjRND_HAZE,
)


class Renderer(Protocol):
    """Makes images of a world. The same state gives the same bytes on one machine.

    Attributes:
        name: `egl` or `drawn`.
        why: for `drawn` in place of `egl`, what kept EGL from working; otherwise empty.
    """

    name: str
    why: str

    def render(self, view: str) -> NDArray[np.uint8]:
        """Return the view's image now, [height, width, 3] RGB."""
        ...

    def close(self) -> None:
        """Free what the renderer holds; it renders no more."""
        ...


class EglRenderer:
    """MuJoCo's renderer in an OpenGL context without a screen. It belongs to the thread that made it."""

    name = "egl"
    why = ""

    def __init__(self, world: World, width: int, height: int) -> None:
        """Make the context and load the model into it.

        Raises:
            FlashrtError: DEVICE if this machine has no EGL or no OpenGL driver behind it.
        """
        # Mesa's software driver starts a thread a core otherwise, and takes them from inference.
        os.environ.setdefault("LP_NUM_THREADS", "0")
        size = world.model.vis.global_
        size.offwidth, size.offheight = width, height
        try:
            self._gl = _current_context(width, height)
            self._context = mujoco.MjrContext(world.model, mujoco.mjtFontScale.mjFONTSCALE_50.value)
        # PyOpenGL says in any of these ways that libEGL or libOpenGL is missing or has no driver.
        except (ImportError, AttributeError, ArgumentError, OSError, RuntimeError, mujoco.FatalError) as error:
            raise FlashrtError(
                ErrorCode.DEVICE,
                f"no OpenGL through EGL ({type(error).__name__}: {error}): install libegl1, libopengl0 and "
                "libgl1-mesa-dri, or choose renderer drawn",
            ) from error
        self._free = weakref.finalize(self, _free, self._gl, self._context)
        self._free.atexit = False  # EGL itself has ended by then
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._world = world
        self._scene = mujoco.MjvScene(world.model, maxgeom=world.model.ngeom + 16)
        for flag in _COSTLY:
            self._scene.flags[flag] = 0
        self._option = mujoco.MjvOption()
        self._rectangle = mujoco.MjrRect(0, 0, width, height)
        self._cameras = {view: _fixed_camera(world, view) for view in VIEWS}
        self._pixels = np.empty((height, width, 3), dtype=np.uint8)

    def render(self, view: str) -> NDArray[np.uint8]:
        """See Renderer."""
        self._gl.make_current()
        mujoco.mjv_updateScene(
            self._world.model,
            self._world.data,
            self._option,
            None,
            self._cameras[view],
            mujoco.mjtCatBit.mjCAT_ALL.value,
            self._scene,
        )
        mujoco.mjr_render(self._rectangle, self._scene, self._context)
        mujoco.mjr_readPixels(self._pixels, None, self._rectangle, self._context)
        return np.ascontiguousarray(self._pixels[::-1])  # OpenGL's first row is the lowest

    def close(self) -> None:
        """See Renderer."""
        self._free()


def _free(gl: GLContext, context: mujoco.MjrContext) -> None:
    gl.make_current()  # else it would free what has the same numbers in another renderer's context
    context.free()
    gl.free()


def _current_context(width: int, height: int) -> GLContext:
    # Imported here rather than chosen through MUJOCO_GL, which counts only before the first import of mujoco.
    from mujoco.egl import GLContext
    from OpenGL.error import Error  # type: ignore[import-untyped]

    try:
        context = GLContext(width, height)
        context.make_current()
    except Error as error:
        raise RuntimeError(str(error)) from error
    return context


def _fixed_camera(world: World, view: str) -> mujoco.MjvCamera:
    camera = mujoco.MjvCamera()
    camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
    camera.fixedcamid = world.model.camera(view).id
    return camera


def open_renderer(world: World, kind: str = "auto", width: int = 96, height: int = 96) -> Renderer:
    """Make a renderer of `world`.

    Args:
        world: what it will show.
        kind: `egl`, `drawn`, or `auto`: egl where it works, else drawn, whose `why` then says what egl lacked.
        width: pixels.
        height: pixels.

    Raises:
        FlashrtError: BAD_REQUEST for another kind or a size outside 16 .. 1024; DEVICE if egl was asked for and
            does not work here.
    """
    if kind not in RENDERERS:
        raise FlashrtError(ErrorCode.BAD_REQUEST, f"renderer is {kind!r}: choose one of {', '.join(RENDERERS)}")
    if not (16 <= width <= 1024 and 16 <= height <= 1024):
        raise FlashrtError(ErrorCode.BAD_REQUEST, f"image size is {width} x {height}: give 16 to 1024 each")
    if kind == "drawn":
        return DrawnRenderer(world, width, height)
    try:
        return EglRenderer(world, width, height)
    except FlashrtError as error:
        if kind == "egl":
            raise
        return DrawnRenderer(world, width, height, why=str(error))
