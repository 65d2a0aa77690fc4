# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A client of all that policy_node offers."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from diagnostic_msgs.msg import DiagnosticArray
from goal import Goal
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.node import Node
from waiting import wait

from flashrt_ros.node.action_client import ThreadSafeActionClient
from flashrt_ros.node.interfaces import action, srv

_NUMBERS = itertools.count()
_LIFECYCLE = {"change_state": ChangeState, "get_state": GetState}


class Client:
    """Calls everything that policy_node offers."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._services: dict[str, Any] = {}
        self._action = ThreadSafeActionClient(node, action.RunPolicy, "policy/run_policy")
        self.diagnostics: dict[str, Any] = {}
        node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)

    def send(self, service: str, /, **fields: Any) -> Any:
        """Call a service (its name in snake case) and return the future."""
        client = self._found(service)
        return client.call_async(client.srv_type.Request(**fields))

    def call(self, service: str, /, timeout: float = 20.0, **fields: Any) -> Any:
        """Call a service, again and again under one request id: a node that was killed is still there for a while."""
        if service not in _LIFECYCLE:
            fields.setdefault("request_id", f"call.{next(_NUMBERS)}")
        self._found(service)  # a process that starts takes its time, which is not the answer's
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            future = self.send(service, **fields)
            until = min(deadline, time.monotonic() + 3.0) if service != "change_state" else deadline
            while time.monotonic() < until:
                if future.done():
                    return future.result()
                time.sleep(0.0005)
        return pytest.fail(f"waited {timeout} s in vain for the response of {service}")

    def answer(self, future: Any, timeout: float = 20.0) -> Any:
        wait(future.done, timeout, "the response of a service")
        return future.result()

    def transition(self, label: str, timeout: float = 30.0) -> bool:
        self.state()  # is asked again until it is answered: then this node hears, and not one that has just ended
        request = ChangeState.Request()
        request.transition.label = label
        return bool(self.call("change_state", timeout, transition=request.transition).success)

    def state(self) -> str:
        return str(self.call("get_state").current_state.label)

    def run(self, **fields: Any) -> Goal:
        return Goal(self._action, **fields)

    def capsule(self, name: str) -> Any:
        """What the list says of a capsule."""
        return next(capsule for capsule in self.call("list_capsules").capsules if capsule.name == name)

    def digest(self, name: str) -> str:
        """The digest of a capsule's state."""
        return wait(lambda: str(self.capsule(name).sha256), what=f"the digest of {name}")

    def live_digest(self) -> str:
        """The digest of the live state."""
        name = f"live.{next(_NUMBERS)}"
        assert self.call("snapshot", name=name).error_code == 0
        digest = self.digest(name)
        self.call("drop_capsule", name=name)
        return digest

    def _found(self, service: str) -> Any:
        """The client of a service, once there is such a service."""
        if service not in self._services:
            kind = _LIFECYCLE.get(service) or getattr(srv, "".join(word.title() for word in service.split("_")))
            self._services[service] = self._node.create_client(kind, f"policy/{service}")
        client = self._services[service]
        assert client.wait_for_service(60.0), service
        return client

    def _on_diagnostics(self, report: DiagnosticArray) -> None:
        # at once: whoever looks from another thread sees the whole report
        self.diagnostics.update({status.name.removeprefix("policy: "): status for status in report.status})
