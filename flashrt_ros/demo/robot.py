# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The simulated robot as a ROS node: what it publishes and its services. When it steps is its pace's affair."""

from __future__ import annotations

from collections.abc import Callable

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.node import Node
from sensor_msgs.msg import Image, JointState
from std_srvs.srv import Trigger

from flashrt_ros.demo.render import VIEWS, open_renderer
from flashrt_ros.demo.robot_messages import image_message, joint_state
from flashrt_ros.demo.world import World
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

_LARGEST_SEED = 2**63 - 1  # of a ROS parameter
_DEPTH = 10


class Robot(Node):
    """Node `robot`: an arm over a table, seen by two cameras.

    Publishes joint_states, camera/front/image_raw and camera/wrist/image_raw; serves ~/save_world, ~/load_world and
    ~/reset_world. One world is kept at a time.

    Attributes:
        world: the simulation.
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
        self._declare()
        rate = self.get_parameter("rate").value
        self.period = round(1_000_000_000 / rate)
        self.world = World(self.get_parameter("seed").value)
        try:
            self.world.substeps(self.dt)
        except FlashrtError as error:
            raise FlashrtError(ErrorCode.BAD_REQUEST, f"parameter rate is {rate} Hz: {error}") from error
        self.targets = self.world.targets
        self._renderer = open_renderer(
            self.world,
            self.get_parameter("renderer").value,
            self.get_parameter("image_width").value,
            self.get_parameter("image_height").value,
        )
        self.get_logger().info(f"renderer {self._renderer.name}")
        if self._renderer.why:
            self.get_logger().warning(f"views are drawn plainly: {self._renderer.why}")
        self._joint_states = self.create_publisher(JointState, "joint_states", _DEPTH)
        self._images = {view: self.create_publisher(Image, f"camera/{view}/image_raw", _DEPTH) for view in VIEWS}
        self._observation: tuple[JointState, dict[str, Image]] | None = None
        self._saved: tuple[bytes, str] | None = None
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
        self.world.step(self.targets, self.dt)

    def observe(self, stamp: int) -> None:
        """Take joint states and images of the world now, stamped `stamp` (ns)."""
        images = {view: image_message(self._renderer.render(view), f"camera_{view}", stamp) for view in VIEWS}
        self._observation = joint_state(self.world, stamp), images

    def publish(self) -> None:
        """Publish the newest observation, again if it was published before."""
        if self._observation is None:
            return
        state, images = self._observation
        self._joint_states.publish(state)
        for view, image in images.items():
            self._images[view].publish(image)

    def destroy_node(self) -> None:
        """Free the renderer too."""
        self._renderer.close()
        super().destroy_node()

    def _declare(self) -> None:
        def declare(name: str, default: object, description: str, **more: object) -> None:
            self.declare_parameter(name, default, ParameterDescriptor(description=description, **more))

        def size(name: str) -> None:
            sizes = IntegerRange(from_value=16, to_value=1024, step=1)
            declare(name, 96, "Pixels of both cameras.", read_only=True, integer_range=[sizes])

        def number(name: str, default: float, low: float, high: float, description: str) -> None:
            span = FloatingPointRange(from_value=low, to_value=high, step=0.0)
            declare(name, default, description, read_only=True, floating_point_range=[span])

        seeds = IntegerRange(from_value=0, to_value=_LARGEST_SEED, step=1)
        declare("seed", 0, "Seed of the world; ~/reset_world takes the value at its time.", integer_range=[seeds])
        declare("mode", "lockstep", "lockstep: one tick a command; realtime: by the wall clock.", read_only=True)
        declare("renderer", "auto", "auto, egl or drawn; auto takes drawn where egl does not work.", read_only=True)
        size("image_width")
        size("image_height")
        number("rate", 10.0, 1.0, 500.0, "Ticks a second; a tick must be a multiple of the physics timestep.")
        number("pacing", 0.0, 0.0, 100.0, "Lockstep: simulated seconds a second at most; 0: as fast as commands come.")
        number("republish_period", 1.0, 0.05, 60.0, "Lockstep: seconds after which a tick is published again.")
        number("controller_timeout", 0.5, 0.01, 60.0, "Realtime: seconds without a command until a warning.")

    def _describe(self) -> str:
        return f"{self.world.time:.3f} s after the reset with seed {self.world.seed}"

    def _save(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._saved = self.world.save(), self._describe()
        response.success, response.message = True, f"saved the world {self._describe()}"
        return response

    def _load(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        if self._saved is None:
            response.success, response.message = False, "no world is saved: call ~/save_world first"
            return response
        state, description = self._saved
        self.world.load(state)
        self._take_over()
        response.success, response.message = True, f"loaded the world {description}"
        return response

    def _reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self.world.reset(self.get_parameter("seed").value)
        self._take_over()
        response.success, response.message = True, f"reset the world with seed {self.world.seed}"
        return response

    def _take_over(self) -> None:
        self.targets = self.world.targets
        self.on_world_changed()
