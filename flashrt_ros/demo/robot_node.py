# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""`demo_robot`: the simulated robot, in lockstep with its commands or on the wall clock."""

from __future__ import annotations

import sys
import threading
import time

from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState

from flashrt_ros.demo.robot import Robot
from flashrt_ros.demo.robot_messages import targets_of
from flashrt_ros.node import qos
from flashrt_ros.node.run import run_node
from flashrt_ros.node.stamps import from_nanoseconds, to_nanoseconds
from flashrt_ros.runtime.errors import FlashrtError

_LOG_INTERVAL = 2.0  # s


class Lockstep:
    """Advances the world by one tick for each command that is stamped with the current tick's time.

    Owns /clock. Of a tick it publishes the joint states and the images first and /clock last. Topics are not ordered
    among one another, so an observer takes the parts of a tick by their stamp. Until the command has come the same
    messages are published again and again, so that one who joined late, or lost a message, can answer: an observer
    must take a repeated tick as the same one, and answer it with the same command.

    Simulated time never goes back: after a load or a reset of the world the next tick shows the new state.
    """

    def __init__(self, robot: Robot) -> None:
        self._robot = robot
        self._tick = 0
        self._stamp = 0
        self._waiting = False  # for the command of a published tick
        self._clock = robot.create_publisher(Clock, "/clock", qos.CLOCK)
        self._due = time.monotonic()
        self._pace = robot.create_timer(1.0, self._begin_tick, clock=robot.steady_clock, autostart=False)
        again = robot.get_parameter("republish_period").value
        self._again = robot.create_timer(again, self._publish, clock=robot.steady_clock)
        robot.create_subscription(JointState, "joint_command", self._on_command, qos.COMMAND)
        robot.on_world_changed = self._begin_tick
        self._begin_tick()

    def _begin_tick(self) -> None:
        self._pace.cancel()
        self._tick += 1
        self._stamp = self._tick * self._robot.period
        pacing = self._robot.get_parameter("pacing").value
        interval = self._robot.dt / pacing if pacing else 0.0
        self._due = max(self._due + interval, time.monotonic())  # a late tick is made up for, not many
        self._robot.observe(self._stamp)
        self._waiting = True
        self._publish()

    def _publish(self) -> None:
        if self._waiting:
            self._again.reset()
            self._robot.publish()
            self._clock.publish(Clock(clock=from_nanoseconds(self._stamp)))

    def _on_command(self, command: JointState) -> None:
        if not self._waiting or to_nanoseconds(command.header.stamp) != self._stamp:
            return  # the answer to a repetition of a tick that is over, or to one before a load
        if not _take(self._robot, command):
            return
        self._waiting = False
        self._robot.step()
        wait = self._due - time.monotonic()
        if wait > 0:
            self._pace.timer_period_ns = int(wait * 1e9)
            self._pace.reset()
        else:
            self._begin_tick()


class Realtime:
    """Steps and publishes by the wall clock; the newest command holds until the next."""

    def __init__(self, robot: Robot) -> None:
        self._robot = robot
        self._timeout = robot.get_parameter("controller_timeout").value
        self._commanded: float | None = None  # when; None: nothing to miss
        self._ticked = time.monotonic()
        robot.create_timer(robot.dt, self._on_tick, clock=robot.steady_clock)
        robot.create_subscription(JointState, "joint_command", self._on_command, qos.COMMAND)

    def _on_command(self, command: JointState) -> None:
        if _take(self._robot, command):
            self._commanded = time.monotonic()

    def _on_tick(self) -> None:
        robot, now = self._robot, time.monotonic()
        lost = round((now - self._ticked) / robot.dt) - 1
        self._ticked = now
        if lost > 0:
            robot.get_logger().warning(
                f"{lost} ticks lost: simulated time runs behind the wall clock", throttle_duration_sec=_LOG_INTERVAL
            )
        if self._commanded is not None and now - self._commanded > self._timeout:
            robot.get_logger().warning(f"no command for {self._timeout} s: holding the last targets")
            self._commanded = None
        robot.step()
        robot.observe(robot.get_clock().now().nanoseconds)
        robot.publish()


def _take(robot: Robot, command: JointState) -> bool:
    """Make a command's positions the targets, or log why not."""
    try:
        robot.targets = targets_of(command)
    except FlashrtError as error:
        robot.get_logger().error(str(error), throttle_duration_sec=_LOG_INTERVAL)
        return False
    return True


def _make_robot(stop: threading.Event) -> Robot:
    robot = Robot()
    if robot.get_parameter("mode").value == "lockstep":
        Lockstep(robot)
    else:
        Realtime(robot)
    return robot


def main(args: list[str] | None = None) -> int:
    """Run the robot until SIGINT or SIGTERM (exit code 0); 1: it cannot start, and says why."""
    return run_node(_make_robot, args)


if __name__ == "__main__":
    sys.exit(main())
