# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Clients of the soak, in processes of their own: one that calls all the time, and some that die while they call.

The steady one saves and lists; it may be refused, but an answer must come. A victim prints a line when
it is ready, calls once it reads one, and is gone before the answer.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import rclpy
from rclpy.action import ActionClient
from rclpy.node import Node

from flashrt_ros.node.interfaces import action, srv
from flashrt_ros.tools.acquaint import until_known

ANCHOR = "anchor"
VICTIMS = ("snapshot", "restore", "run_policy")
_PERIOD = 0.4  # s
_PATIENCE = 15.0  # s; longer than any fault lasts
_ON_THE_WAY = 0.005  # s until a request has left


def steady(node: Node) -> None:
    """Call until the process is ended; raises TimeoutError where no answer comes."""
    snapshot = node.create_client(srv.Snapshot, "policy/snapshot")
    listed = node.create_client(srv.ListCapsules, "policy/list_capsules")
    for client, request in ((snapshot, srv.Snapshot.Request(name="no name")), (listed, srv.ListCapsules.Request())):
        _acquaint(node, client, request)
    count = 0
    while True:
        count += 1
        _answer(node, snapshot, srv.Snapshot.Request(name=f"steady_{count}"))
        _answer(node, listed, srv.ListCapsules.Request())
        time.sleep(_PERIOD)


def _answer(node: Node, client: Any, request: Any) -> None:
    if not client.wait_for_service(_PATIENCE):
        raise TimeoutError(f"{client.srv_name} is not there")
    future = client.call_async(request)
    rclpy.spin_until_future_complete(node, future, timeout_sec=_PATIENCE)
    if not future.done():
        raise TimeoutError(f"{client.srv_name} has not answered for {_PATIENCE:g} s")


def _acquaint(node: Node, client: Any, refused: Any) -> None:
    def spin(future: Any, seconds: float) -> None:
        rclpy.spin_until_future_complete(node, future, timeout_sec=seconds)

    until_known(client, refused, spin, _PATIENCE)


def victim(node: Node, what: str) -> None:
    """Call, and be killed."""
    call = _prepare(node, what)
    print("ready", flush=True)
    sys.stdin.readline()
    call()
    time.sleep(_ON_THE_WAY)
    os.kill(os.getpid(), signal.SIGKILL)


def _prepare(node: Node, what: str) -> Callable[[], Any]:
    if what == "run_policy":
        goals = ActionClient(node, action.RunPolicy, "policy/run_policy")
        goals.wait_for_server(_PATIENCE)
        return lambda: goals.send_goal_async(action.RunPolicy.Goal(instruction="of one that is gone"))
    refused, request = {
        "snapshot": (srv.Snapshot.Request(name="no name"), srv.Snapshot.Request(name=f"victim_{os.getpid()}")),
        "restore": (srv.Restore.Request(name="nobody"), srv.Restore.Request(name=ANCHOR)),
    }[what]
    client = node.create_client(srv.Snapshot if what == "snapshot" else srv.Restore, f"policy/{what}")
    _acquaint(node, client, refused)  # so that the next request will arrive
    return lambda: client.call_async(request)


def main() -> int:
    """Be one client."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=("steady", *VICTIMS))
    role = parser.parse_args().role
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    rclpy.init(args=[], signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
    node = rclpy.create_node(f"soak_{role}_{os.getpid()}")
    if role == "steady":
        steady(node)
    else:
        victim(node, role)
    return 0


if __name__ == "__main__":
    sys.exit(main())
