# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The simulated robot as a ROS node: what it publishes and its services. When it steps is its pace's affair."""

from __future__ import annotations

from collections.abc import Callable

from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import UInt8MultiArray
from std_srvs.srv import Trigger

from flashrt_ros.demo.render import RENDERERS, VIEWS, open_renderer
from flashrt_ros.demo.robot_messages import image_message, joint_state, state_message
from flashrt_ros.demo.scene import NO_PUSH, NO_TASK, TASKS, SavedScene, Scene
from flashrt_ros.demo.world import World
from flashrt_ros.node.parameters import Parameter, declare
from flashrt_ros.node.qos import COMMAND, LATCHED, input_qos
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

_PARAMETERS = (
    Parameter("mode", "lockstep", "One tick a command, or by the wall clock.", choices=("lockstep", "realtime")),
    Parameter("seed", 0, "Of world and task; ~/reset_world takes its present value.", 0, 2**63 - 1, read_only=False),
    Parameter("task", NO_TASK, f"Likewise: {', '.join(TASKS)}.", read_only=False),
    Parameter("push", NO_PUSH, "Likewise: first tick, ticks, and what is added to each target (rad).", read_only=False),
    Parameter("renderer", "auto", "Of the camera views; auto draws where egl does not work.", choices=RENDERERS),
    Parameter("image_width", 96, "Pixels.", 16, 1024),
    Parameter("image_height", 96, "Pixels.", 16, 1024),
    Parameter("rate", 10.0, "Ticks a second; a tick must be a multiple of the physics timestep.", 1.0, 500.0),
    Parameter(
        "pacing",
        0.0,
        "Lockstep: simulated seconds a second at most; 0: as fast as commands come.",
        0.0,
        100.0,
        read_only=False,
    ),
    Parameter("republish_period", 1.0, "Lockstep: seconds after which a tick is published again.", 0.05, 60.0),
    Parameter("controller_timeout", 0.5, "Realtime: seconds without a command until a warning.", 0.01, 60.0),
)


class Robot(Node):
    """Node `robot`: an arm over a table, seen by two cameras.

    Publishes joint_states, camera/front/image_raw and camera/wrist/image_raw; ~/episode, how the task stands, when that
    changes; ~/world, the state of the scene, where somebody listens. Serves ~/save_world, ~/load_world and
    ~/reset_world. One world is kept at a time.

    Attributes:
        steady_clock: for timers, whatever simulated time does.
        scene: the simulation, and the task that is played in it.
        targets: joint positions (rad) that the servos pull towards in the next tick.
        period: one tick in ns.
        on_world_changed: called after a service has replaced the state of the world.
    """

    def __init__(self) -> None:
        """Declare the parameters, build the world and open the renderer.

        Raises:
            FlashrtError: BAD_REQUEST for parameters that do not fit together, DEVICE if the renderer that was asked
                for does not work here.
        """
        super().__init__("robot")
        self.steady_clock = Clock(clock_type=ClockType.STEADY_TIME)
        declare(self, _PARAMETERS)
        rate = self.get_parameter("rate").value
        self.period = round(1_000_000_000 / rate)
        self.scene = Scene(World())
        try:
            self.scene.world.substeps(self.dt)
        except FlashrtError as error:
            raise FlashrtError(ErrorCode.BAD_REQUEST, f"parameter rate is {rate} Hz: {error}") from error
        self._reset_scene()
        self.targets = self.scene.world.targets
        self._renderer = open_renderer(
            self.scene.world,
            self.get_parameter("renderer").value,
            self.get_parameter("image_width").value,
            self.get_parameter("image_height").value,
        )
        self.get_logger().info(f"renderer {self._renderer.name}")
        if self._renderer.why:
            self.get_logger().warning(f"views are drawn plainly: {self._renderer.why}")
        self._joint_states = self.create_publisher(JointState, "joint_states", input_qos("reliable"))
        self._images = {
            view: self.create_publisher(Image, f"camera/{view}/image_raw", input_qos("reliable")) for view in VIEWS
        }
        self._observation: tuple[JointState, dict[str, Image]] | None = None
        self._states = self.create_publisher(UInt8MultiArray, "~/world", COMMAND)
        self._episodes = self.create_publisher(DiagnosticStatus, "~/episode", LATCHED)
        self._shown: DiagnosticStatus | None = None
        self._saved: tuple[SavedScene, str] | None = None
        self.on_world_changed: Callable[[], None] = lambda: None
        self.create_service(Trigger, "~/save_world", self._save)
        self.create_service(Trigger, "~/load_world", self._load)
        self.create_service(Trigger, "~/reset_world", self._reset)

    @property
    def dt(self) -> float:
        """One tick in seconds."""
        return self.period * 1e-9

    def step(self) -> None:
        """Move the world on by one tick."""
        self.scene.step(self.targets, self.dt)

    def observe(self, stamp: int) -> None:
        """Take joint states and images of the world now, stamped `stamp` (ns)."""
        images = {view: image_message(self._renderer.render(view), f"camera_{view}", stamp) for view in VIEWS}
        self._observation = joint_state(self.scene.world, stamp), images

    def publish(self) -> None:
        """Publish the newest observation, again if it was published before."""
        if self._observation is None:
            return
        state, images = self._observation
        self._joint_states.publish(state)
        for view, image in images.items():
            self._images[view].publish(image)
        if self._states.get_subscription_count():
            self._states.publish(state_message(self.scene.save().state))
        self._publish_episode()

    def finish(self) -> None:
        """Free the renderer."""
        self._renderer.close()

    def _publish_episode(self) -> None:
        status = self.scene.status()
        if self._shown is None or _standing(status) != _standing(self._shown):
            self._shown = status
            self._episodes.publish(status)

    def _describe(self) -> str:
        return f"{self.scene.world.time:.3f} s after the reset with seed {self.scene.world.seed}"

    def _save(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._saved = self.scene.save(), self._describe()
        response.success, response.message = True, f"saved the world {self._describe()}"
        return response

    def _load(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        if self._saved is None:
            response.success, response.message = False, "no world is saved: call ~/save_world first"
            return response
        state, description = self._saved
        self.scene.load(state)
        self._take_over()
        response.success, response.message = True, f"loaded the world {description}"
        return response

    def _reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        try:
            self._reset_scene()
        except FlashrtError as error:
            response.success, response.message = False, str(error)
            return response
        self._take_over()
        response.success, response.message = True, f"reset the world with seed {self.scene.world.seed}"
        return response

    def _reset_scene(self) -> None:
        task, seed, push = (self.get_parameter(name).value for name in ("task", "seed", "push"))
        self.scene.reset(task, seed, push, self.dt)

    def _take_over(self) -> None:
        self._shown = None  # a new episode is told, even if it stands as the one before did
        self.targets = self.scene.world.targets
        self.on_world_changed()


def _standing(status: DiagnosticStatus) -> list[str]:
    """What of a status is news: everything but the tick."""
    return [status.message, *(value.value for value in status.values if value.key != "tick")]
