# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Shows the robot's world in MuJoCo's window, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from std_msgs.msg import UInt8MultiArray

from flashrt_ros.demo import interrupts
from flashrt_ros.demo.processes import Processes

_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")
_LOOK_AT, _DISTANCE, _AZIMUTH, _ELEVATION = (0.12, 0.0, 0.08), 0.75, 160.0, -30.0  # m, degrees


def no_screen() -> str:
    """Return why no window can be shown; empty: there is a screen."""
    if sys.platform != "linux" or any(os.environ.get(name) for name in _SCREENS):
        return ""
    return f"there is no screen here: {' and '.join(_SCREENS)} are empty"


@contextlib.contextmanager
def open_window(folder: Path) -> Iterator[None]:
    """Have the window there, and its log in `folder`. Closing it by hand disturbs nothing."""
    with Processes(folder) as processes:
        processes.start("view", [sys.executable, "-m", "flashrt_ros.demo.view"])
        yield


def main() -> int:
    """Show the world until the window is closed; 1: there is no screen."""
    trouble = no_screen()
    if trouble:
        print(trouble, file=sys.stderr)
        return 1
    interrupts.raise_once()
    with contextlib.suppress(KeyboardInterrupt):  # the demo is over
        _show()
    return 0


def _show() -> None:
    import mujoco.viewer  # opens GLFW, so it is imported only where there is a screen
    import rclpy
    from rclpy.signals import SignalHandlerOptions

    from flashrt_ros.demo.scene import load_world
    from flashrt_ros.demo.world import World
    from flashrt_ros.node import qos

    world = World()
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node("demo_view")
    with mujoco.viewer.launch_passive(world.model, world.data, show_left_ui=False, show_right_ui=False) as window:
        window.cam.lookat[:] = _LOOK_AT
        window.cam.distance, window.cam.azimuth, window.cam.elevation = _DISTANCE, _AZIMUTH, _ELEVATION

        def show(message: UInt8MultiArray) -> None:
            with window.lock():
                load_world(world, bytes(message.data))
            window.sync()

        node.create_subscription(UInt8MultiArray, "robot/world", show, qos.COMMAND)
        while window.is_running():
            rclpy.spin_once(node, timeout_sec=0.1)


if __name__ == "__main__":
    sys.exit(main())
