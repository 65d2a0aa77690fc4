# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""`~/start_policy` and `~/stop_policy`: running the policy for clients that only call services."""

from __future__ import annotations

from typing import Any

from rclpy.node import Node

from flashrt_ros.node.interfaces import srv
from flashrt_ros.node.rate_limit import RateLimit
from flashrt_ros.node.request_log import RequestLog
from flashrt_ros.node.run_policy import RunPolicy
from flashrt_ros.node.service_server import serve
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

_STOPPED = "stopped"


class RunServices:
    """A run without a goal's handle: `~/state` says what became of it."""

    def __init__(self, node: Node, log: RequestLog, limit: RateLimit, runs: RunPolicy) -> None:
        self._node = node
        self._runs = runs
        serve(node, log, srv.StartPolicy, "~/start_policy", self._start, limit=limit)
        serve(node, log, srv.StopPolicy, "~/stop_policy", self._stop)

    async def _start(self, request: srv.StartPolicy.Request, response: srv.StartPolicy.Response) -> Any:
        run = self._runs.new_run(request, lambda feedback: None)
        begun = await self._runs.start(request, run)
        end = run.end
        executor = self._node.executor
        if executor is None:
            raise ValueError("a service is answered, and nobody spins its node")
        executor.create_task(self._runs.finish, run, begun)
        if end is not None:
            raise FlashrtError(ErrorCode.CANCELED, f"ended before it ran: {end.reason}")
        response.boundary, response.prefilled_tokens = begun.head.id, begun.prefilled_tokens
        response.epoch = begun.epoch
        return response

    async def _stop(self, request: srv.StopPolicy.Request, response: srv.StopPolicy.Response) -> Any:
        run = await self._runs.stop(_STOPPED)
        if run is not None and run.end is not None:
            response.reason, response.steps = run.end.reason, run.steps
        response.final_boundary = self._runs.head
        return response
