# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A lifecycle node whose transitions say why they failed, and that can start by itself."""

from __future__ import annotations

import threading
import traceback
from abc import abstractmethod
from collections.abc import Callable, Iterable

from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from flashrt_ros.node.lean_topics import LeanTopics
from flashrt_ros.node.parameters import Parameter, declare
from flashrt_ros.runtime.errors import FlashrtError

AUTOSTART = Parameter("autostart", False, "Configure and activate without being asked, once, after the start.")


class ManagedNode(LeanTopics, LifecycleNode):
    """Base of both nodes: a subclass implements the four steps, which raise FlashrtError to refuse."""

    def __init__(self, name: str, stop: threading.Event, parameters: Iterable[Parameter]) -> None:
        """`stop` is set when the process was asked to end; a long `configure` looks at it."""
        super().__init__(name)
        self.stop = stop
        self.steady_clock = Clock(clock_type=ClockType.STEADY_TIME)
        declare(self, [AUTOSTART, *parameters])
        if self.get_parameter(AUTOSTART.name).value:
            self._starter = self.create_timer(0.0, self._start, clock=self.steady_clock)

    @abstractmethod
    def configure(self) -> None:
        """Read parameters and files, create publishers, subscriptions and services."""

    @abstractmethod
    def activate(self) -> None:
        """Begin to serve."""

    @abstractmethod
    def deactivate(self) -> None:
        """Stop serving; the robot is left safe."""

    @abstractmethod
    def cleanup(self) -> None:
        """Undo `configure`, also one that failed halfway."""

    @property
    def state_label(self) -> str:
        """The lifecycle state: unconfigured, inactive, active or finalized."""
        return str(self._state_machine.current_state[1])

    def finish(self) -> bool:
        """Leave the robot safe and free everything, from whatever state the node is in; True: nothing runs on."""
        if self.state_label in ("unconfigured", "inactive", "active"):
            self.trigger_shutdown()
        return True

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Run `configure`; a failed one is undone, and can be tried again."""
        result = self._attempt("configure", self.configure)
        if result != TransitionCallbackReturn.SUCCESS:
            self.cleanup()
        return result

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Run `activate`."""
        return self._attempt("activate", self.activate)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Run `deactivate`."""
        return self._attempt("deactivate", self.deactivate)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Run `cleanup`."""
        return self._attempt("clean up", self.cleanup)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Deactivate and clean up as far as the state asks for it."""
        result = TransitionCallbackReturn.SUCCESS
        if state.label == "active":
            result = self._attempt("deactivate", self.deactivate)
        if state.label in ("active", "inactive"):
            self._attempt("clean up", self.cleanup)
        return result

    def _attempt(self, name: str, step: Callable[[], None]) -> TransitionCallbackReturn:
        try:
            step()
        except FlashrtError as error:
            if self.stop.is_set():
                self.get_logger().info(f"cannot {name}: asked to stop")
            else:
                self.get_logger().error(f"cannot {name}: {error.code.name}: {error}")
            return TransitionCallbackReturn.FAILURE
        except Exception:
            # rclpy would swallow it: say it here, and let the transition fail
            self.get_logger().fatal(f"cannot {name}:\n{traceback.format_exc()}")
            return TransitionCallbackReturn.FAILURE
        return TransitionCallbackReturn.SUCCESS

    def _start(self) -> None:
        self.destroy_timer(self._starter)
        if self.state_label != "unconfigured":
            return
        if self.trigger_configure() == TransitionCallbackReturn.SUCCESS:
            self.trigger_activate()
