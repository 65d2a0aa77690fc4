# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""`~/save_incident`: write what the flight recorder holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.node import Node

from flashrt_ros.node.executor_bridge import ExecutorBridge
from flashrt_ros.node.interfaces import srv
from flashrt_ros.node.mind import Mind
from flashrt_ros.node.rate_limit import RateLimit
from flashrt_ros.node.request_log import RequestLog
from flashrt_ros.node.service_server import serve


def serve_recorder(
    node: Node, log: RequestLog, limit: RateLimit, bridge: ExecutorBridge, mind: Callable[[], Mind]
) -> None:
    """Create the service; `mind` raises INACTIVE while the node does not serve."""

    async def save(request: srv.SaveIncident.Request, response: srv.SaveIncident.Response) -> Any:
        path = await bridge.result(mind().recorder.save(request.reason or "asked for"))
        response.path = str(path)
        return response

    serve(node, log, srv.SaveIncident, "~/save_incident", save, limit=limit)
