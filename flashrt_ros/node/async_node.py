# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A lifecycle node whose transitions wait without blocking its executor."""

from __future__ import annotations

import threading
import traceback
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from lifecycle_msgs.msg import State, Transition
from rclpy._rclpy_pybind11 import RCLError
from rclpy.callback_groups import CallbackGroup, ReentrantCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNode, TransitionCallbackReturn

from flashrt_ros.node.lean_topics import LeanTopics
from flashrt_ros.node.managed_node import AUTOSTART
from flashrt_ros.node.parameters import Parameter, declare
from flashrt_ros.runtime.errors import FlashrtError

Step = Callable[[], Awaitable[None]]


class AsyncManagedNode(LeanTopics, LifecycleNode):
    """As ManagedNode, but its steps are coroutines: while one waits, services, timers and topics are served.

    rclpy knows only transitions that return at once, so the service that asks for one is answered here. Everything
    runs on one executor thread, so one reentrant group serves all callbacks and nothing needs a lock.
    """

    def __init__(self, name: str, stop: threading.Event, parameters: Iterable[Parameter]) -> None:
        """`stop` is set when the process was asked to end."""
        self._group = ReentrantCallbackGroup()
        super().__init__(name)
        self.stop = stop
        self.steady_clock = Clock(clock_type=ClockType.STEADY_TIME)
        declare(self, [AUTOSTART, *parameters])
        self._service_change_state.callback = self._on_change_state  # type: ignore[assignment]
        if self.get_parameter(AUTOSTART.name).value:
            self._starter = self.create_timer(0.0, self._start, clock=self.steady_clock)

    @property
    def default_callback_group(self) -> CallbackGroup:
        """The group of everything that names no other."""
        return self._group

    @abstractmethod
    async def configure(self) -> None:
        """Read parameters and files, make what `activate` needs. Raises FlashrtError to refuse."""

    @abstractmethod
    async def activate(self) -> None:
        """Begin to serve."""

    @abstractmethod
    async def deactivate(self) -> None:
        """Stop serving; the robot is left safe."""

    @abstractmethod
    async def cleanup(self) -> None:
        """Undo `configure`, also one that failed halfway."""

    @abstractmethod
    def finish(self) -> bool:
        """Leave the robot safe and free everything, from whatever state the node is in, without the executor.

        False: a thread does not end.
        """

    @property
    def state_label(self) -> str:
        """The lifecycle state, also one in transition (configuring, ...)."""
        return str(self._state_machine.current_state[1])

    async def change_state(self, transition: int) -> bool:
        """Make a transition. False: it was refused or failed, and the log says why."""
        origin = self._state_machine.current_state[0]
        try:
            self._state_machine.trigger_transition_by_id(transition, True)
        except RCLError:
            self.get_logger().error(f"transition {transition} is not possible while {self.state_label}")
            return False
        result = TransitionCallbackReturn.SUCCESS
        for name, step in self._steps(transition, origin):
            if not await self._attempt(name, step):
                result = TransitionCallbackReturn.FAILURE
        self._state_machine.trigger_transition_by_label(result.to_label(), True)
        return bool(result == TransitionCallbackReturn.SUCCESS)

    def _steps(self, transition: int, origin: int) -> list[tuple[str, Step]]:
        active = origin == State.PRIMARY_STATE_ACTIVE
        configured = active or origin == State.PRIMARY_STATE_INACTIVE
        deactivate: list[tuple[str, Step]] = [("deactivate", self.deactivate)]
        cleanup: list[tuple[str, Step]] = [("clean up", self.cleanup)]
        steps: dict[int, list[tuple[str, Step]]] = {
            Transition.TRANSITION_CONFIGURE: [("configure", self._configure)],
            Transition.TRANSITION_ACTIVATE: [("activate", self.activate)],
            Transition.TRANSITION_DEACTIVATE: deactivate,
            Transition.TRANSITION_CLEANUP: cleanup,
        }
        return steps.get(transition, deactivate * active + cleanup * configured)

    async def _configure(self) -> None:
        try:
            await self.configure()
        except Exception as error:
            traceback.clear_frames(error.__traceback__)  # it is they that hold what was taken, on other threads too
            await self.cleanup()
            raise

    async def _attempt(self, name: str, step: Step) -> bool:
        try:
            await step()
        except FlashrtError as error:
            self.get_logger().error(f"cannot {name}: {error.code.name}: {error}")
            return False
        except Exception:
            # It would end in the executor, and the transition would never end: say it here.
            self.get_logger().fatal(f"cannot {name}:\n{traceback.format_exc()}")
            return False
        return True

    async def _start(self) -> None:
        self.destroy_timer(self._starter)
        if self.state_label == "unconfigured" and await self.change_state(Transition.TRANSITION_CONFIGURE):
            await self.change_state(Transition.TRANSITION_ACTIVATE)

    async def _on_change_state(self, request: Any, response: Any) -> Any:
        transition = request.transition.id
        if request.transition.label:
            try:
                transition = self._state_machine.get_transition_by_label(request.transition.label)
            except RCLError:
                response.success = False
                return response
        response.success = await self.change_state(transition)
        return response
