# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Behaviours that call a ROS service, once a round, and never wait for it within a tick."""

from __future__ import annotations

import time
import uuid
from abc import abstractmethod
from typing import Any

from py_trees.behaviour import Behaviour
from py_trees.common import Access, Status
from rclpy.client import Client
from rclpy.node import Node
from rclpy.task import Future

from flashrt_ros.node.behaviour_arguments import check_ros_name, check_time_limit, named


class ServiceBehaviour(Behaviour):
    """Sends one request a round, judges the response, and fails when its time is over.

    It needs `setup(node=...)` once, and somebody who spins that node while the tree ticks. The server is looked for
    within the time limit of each round, so it may come later than the tree, or come back.

    Attributes:
        response: of the newest round; None until it has come.
        round_trip: seconds from sending the request to the tick that saw the response, of the newest round.
    """

    def __init__(self, name: str, service: str, service_type: Any, *, time_limit: float, key: str = "") -> None:
        """`service`: relative to the node's namespace; `time_limit`: s; `key`: where the blackboard gets responses."""
        super().__init__(name)
        with named(name):
            check_ros_name("service", service)
            check_time_limit(time_limit)
        self.service = service
        self.time_limit = time_limit
        self.response: Any = None
        self.round_trip = 0.0
        self._type = service_type
        self._node: Node | None = None
        self._client: Client | None = None
        self._future: Future | None = None
        self._begun = self._sent = 0.0
        self._key = key
        self._board = self.attach_blackboard_client() if key else None
        if self._board is not None:
            self._board.register_key(key, access=Access.WRITE)

    @abstractmethod
    def make_request(self) -> Any:
        """Return the request of this round; a ValueError fails the round."""

    @abstractmethod
    def judge(self, response: Any) -> str:
        """Return why a response is a failure; empty: it is a success."""

    def setup(self, **kwargs: Any) -> None:
        """Make the client; the argument `node` is an rclpy node. The server need not be there yet."""
        self._node = required_node(self, kwargs)
        self._client = self._node.create_client(self._type, self.service)

    def initialise(self) -> None:
        """Begin a round."""
        self.response, self.round_trip, self.feedback_message = None, 0.0, ""
        self._begun = time.monotonic()

    def update(self) -> Status:
        """Send the request when the server is there, then look for the response."""
        client = self._client
        if client is None:
            raise RuntimeError(f"behaviour {self.name!r} was ticked before setup(node=...)")
        future = self._future
        if future is not None and future.done():
            return self._judged(future.result())
        ready = client.service_is_ready()
        if time.monotonic() - self._begun > self.time_limit:
            trouble = f"did not answer within {self.time_limit:g} s" if ready else self._absence()
            return self._failed(f"service {self.service} {trouble}")
        if future is not None and not ready:
            return self._failed(f"service {self.service} went away before it answered; look at its node's log")
        if future is None and ready:
            try:
                request = self.make_request()
            except ValueError as error:
                return self._failed(str(error))
            self._sent = time.monotonic()
            self._future = client.call_async(request)
        self.feedback_message = f"waiting for {self.service}" + ("" if ready else " to appear")
        return Status.RUNNING

    def terminate(self, new_status: Status) -> None:
        """Forget a request without a response; the server may still do what it asks."""
        self._forget_request()

    def shutdown(self) -> None:
        """Destroy the client."""
        if self._node is not None and self._client is not None:
            self._node.destroy_client(self._client)
        self._node = self._client = None

    def _judged(self, response: Any) -> Status:
        self.response, self.round_trip = response, time.monotonic() - self._sent
        if self._board is not None:
            self._board.set(self._key, response)
        trouble = self.judge(response)
        if trouble:
            return self._failed(trouble)
        self.feedback_message = f"{self.service} took {self.round_trip * 1e3:.1f} ms"
        return Status.SUCCESS

    def _forget_request(self) -> None:
        if self._future is not None and self._client is not None:
            self._client.remove_pending_request(self._future)
        self._future = None

    def _failed(self, message: str) -> Status:
        self.feedback_message = message
        return Status.FAILURE

    def _absence(self) -> str:
        return f"is not there after {self.time_limit:g} s; start its node, or check the name and ROS_DOMAIN_ID"


class Verb(ServiceBehaviour):
    """A service of flashrt_interfaces: its request has a request_id, its response an error_code.

    A round that ended without a response leaves its request_id to the next round, so that a retry of something that
    was done after all is answered, and not done twice. Every other round has a new one.
    """

    def __init__(self, name: str, service: str, service_type: Any, *, time_limit: float, key: str = "") -> None:
        super().__init__(name, service, service_type, time_limit=time_limit, key=key)
        self._request_id = new_request_id()

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """Return the fields of the request, all but request_id."""

    def check_arguments(self) -> None:
        """Raise FlashrtError for an argument that no request can hold, or that is always refused."""

    def check(self) -> None:
        """Raise ValueError, which names the behaviour, where `check_arguments` refuses; a constructor ends with it."""
        with named(self.name):
            self.check_arguments()

    def make_request(self) -> Any:
        """Return the request with the id of this attempt; its arguments may have been changed between rounds."""
        with named(self.name):
            self.check_arguments()
            return self._type.Request(request_id=self._request_id, **self.fields())

    def judge(self, response: Any) -> str:
        """Judge by error_code."""
        return error_of(response, self._type.Response)

    def terminate(self, new_status: Status) -> None:
        """Keep the request_id where a retry must not do the same thing again."""
        super().terminate(new_status)
        if self.response is not None or new_status == Status.INVALID:
            self._request_id = new_request_id()


def new_request_id() -> str:
    """Return an id that no other request has."""
    return uuid.uuid4().hex


def required_node(behaviour: Behaviour, arguments: dict[str, Any]) -> Node:
    """Return the node among the arguments of a behaviour's setup.

    Raises:
        KeyError: there is none.
    """
    node = arguments.get("node")
    if node is None:
        raise KeyError(f"behaviour {behaviour.name!r} needs an rclpy node: call tree.setup(node=...)")
    return node


def error_of(answer: Any, constants: Any) -> str:
    """Return `NAME: message` of an answer with an error_code; empty where it has none.

    Args:
        answer: a response, or an action's result.
        constants: the type that holds the codes' names.
    """
    if not answer.error_code:
        return ""
    names = (name for name in dir(constants) if name.isupper() and getattr(constants, name) == answer.error_code)
    return f"{next(names, f'error {answer.error_code}')}: {answer.error_msg}"
