# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Behaviours that only the demo needs: wait for the nodes, bring the world back, tell when a leg is over."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from lifecycle_msgs.srv import GetState
from py_trees.behaviour import Behaviour
from py_trees.common import Status
from rcl_interfaces.srv import SetParametersAtomically
from rclpy.node import Node
from rclpy.parameter import Parameter
from std_srvs.srv import Trigger

from flashrt_ros.node.behaviours import ServiceBehaviour
from flashrt_ros.node.interfaces import srv
from flashrt_ros.tools.acquaint import ANSWER_LIMIT

_ATTEMPT_LIMIT = 3.0  # s that a node which starts by itself may answer without having begun


class Do(Behaviour):
    """Does something that takes no time."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        super().__init__(name)
        self._action = action

    def update(self) -> Status:
        """Do it."""
        self._action()
        return Status.SUCCESS


class Wait(Behaviour):
    """Waits until nothing is missing any more."""

    def __init__(self, name: str, missing: Callable[[], str], time_limit: float) -> None:
        """`missing` says in words what is; empty: nothing. `time_limit` in s."""
        super().__init__(name)
        self._missing = missing
        self._time_limit = time_limit
        self._begun = 0.0

    def initialise(self) -> None:
        """Begin to wait."""
        self._begun = time.monotonic()

    def update(self) -> Status:
        """Look once."""
        self.feedback_message = self._missing()
        if not self.feedback_message:
            return Status.SUCCESS
        if time.monotonic() - self._begun > self._time_limit:
            self.feedback_message = f"after {self._time_limit:g} s still: {self.feedback_message}"
            return Status.FAILURE
        return Status.RUNNING


class Poll(ServiceBehaviour):
    """Asks a service again and again until its answer has what is wanted."""

    @abstractmethod
    def missing(self, response: Any) -> str:
        """Return what an answer lacks; empty: nothing."""

    def update(self) -> Status:
        """Ask, again where no answer comes, or look at the answer."""
        asked = self._future is not None and not self._future.done()
        if asked and time.monotonic() - self._sent > ANSWER_LIMIT:
            self._forget_request()
        status = super().update()
        if status != Status.SUCCESS:
            return status
        self.feedback_message = self.missing(self.response)
        if not self.feedback_message:
            return Status.SUCCESS
        if time.monotonic() - self._begun > self.time_limit:
            self.feedback_message = f"after {self.time_limit:g} s still: {self.feedback_message}"
            return Status.FAILURE
        self._future = None
        return Status.RUNNING


class Active(Poll):
    """Waits until a lifecycle node that starts by itself is active.

    Attributes:
        node_name: of that node.
    """

    def __init__(self, node_name: str, time_limit: float) -> None:
        super().__init__(f"{node_name} to be active", f"{node_name}/get_state", GetState, time_limit=time_limit)
        self.node_name = node_name
        self._unconfigured_since: float | None = None

    def make_request(self) -> Any:
        """Return the question."""
        return GetState.Request()

    def initialise(self) -> None:
        """Begin to ask."""
        super().initialise()
        self._unconfigured_since = None

    def judge(self, response: Any) -> str:
        """Refuse a node that is left unconfigured: what it tried at its start has failed."""
        if response.current_state.label != "unconfigured":
            self._unconfigured_since = None
            return ""
        now = time.monotonic()
        if self._unconfigured_since is None:
            self._unconfigured_since = now
        failed = now - self._unconfigured_since > _ATTEMPT_LIMIT
        return f"{self.node_name} could not be configured" if failed else ""

    def missing(self, response: Any) -> str:
        """Return the state that the node is in instead."""
        label = response.current_state.label
        return "" if label == "active" else f"{self.node_name} is {label}"


def until_active(
    node: Node, name: str, time_limit: float, until: Callable[[Callable[[], bool], float, str], object]
) -> str:
    """Wait, without a tree, until a lifecycle node that starts by itself is active.

    Args:
        node: asks.
        name: of the lifecycle node.
        time_limit: s.
        until: spins `node` until a condition holds: `until(condition, seconds at most, what is waited for)`.

    Returns:
        Why it is not active; empty: it is.
    """
    step = Active(name, time_limit)
    step.setup(node=node)

    def over() -> bool:
        step.tick_once()
        return step.status != Status.RUNNING

    until(over, math.inf, step.name)  # the step has its own time limit
    step.shutdown()
    return "" if step.status == Status.SUCCESS else step.feedback_message


class Digests(Poll):
    """Waits until the capsules that are asked for have their sha256.

    Attributes:
        found: sha256 by capsule.
    """

    def __init__(self, capsules: list[str], *, name: str, time_limit: float = 20.0) -> None:
        super().__init__(name, "policy/list_capsules", srv.ListCapsules, time_limit=time_limit)
        self._capsules = capsules
        self.found: dict[str, str] = {}

    def make_request(self) -> Any:
        """Return the question."""
        return srv.ListCapsules.Request()

    def judge(self, response: Any) -> str:
        """Judge by error_code."""
        return response.error_msg if response.error_code else ""

    def missing(self, response: Any) -> str:
        """Return the capsules without a digest."""
        listed = {capsule.name: capsule.sha256 for capsule in response.capsules}
        self.found = {name: listed.get(name, "") for name in self._capsules}
        absent = [name for name, digest in self.found.items() if not digest]
        return f"no sha256 yet of {', '.join(absent)}" if absent else ""


class Order(ServiceBehaviour):
    """Calls a service that takes no arguments; `on_success` is called when it has done what it does."""

    def __init__(self, name: str, service: str, on_success: Callable[[], None] = lambda: None) -> None:
        super().__init__(name, service, Trigger, time_limit=10.0)
        self._on_success = on_success

    def make_request(self) -> Any:
        """Return the request."""
        return Trigger.Request()

    def judge(self, response: Any) -> str:
        """Judge by success."""
        if response.success:
            self._on_success()
        return "" if response.success else response.message


class SetParameters(ServiceBehaviour):
    """Sets parameters of a node, all or none.

    Attributes:
        values: by name; they may be changed before a round.
    """

    def __init__(self, name: str, node_name: str, values: Mapping[str, Any]) -> None:
        service = f"{node_name}/set_parameters_atomically"
        super().__init__(name, service, SetParametersAtomically, time_limit=10.0)
        self.values = dict(values)

    def make_request(self) -> Any:
        """Return the request."""
        parameters = [Parameter(name, value=value).to_parameter_msg() for name, value in self.values.items()]
        return SetParametersAtomically.Request(parameters=parameters)

    def judge(self, response: Any) -> str:
        """Judge by success."""
        return "" if response.result.successful else response.result.reason
