# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Services whose handlers are coroutines, answer once per request id, and turn refusals into responses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from rclpy.node import Node

from flashrt_ros.node.policy_messages import fill_error
from flashrt_ros.node.rate_limit import RateLimit
from flashrt_ros.node.request_log import RequestLog
from flashrt_ros.runtime.errors import FlashrtError

Handler = Callable[[Any, Any], Awaitable[Any]]
"""Takes request and empty response; returns the response, or raises FlashrtError."""


def serve(
    node: Node, log: RequestLog, kind: Any, name: str, handler: Handler, *, limit: RateLimit | None = None
) -> None:
    """Create a service. While its handler waits, the executor serves others. `limit`: how often it may be called."""

    async def apply(request: Any, response: Any) -> Any:
        try:
            if limit is not None:
                limit.take(name)
            return await handler(request, response)
        except FlashrtError as error:
            return fill_error(response, error)

    async def answer(request: Any, response: Any) -> Any:
        try:
            return await log.once(request, lambda: apply(request, response))
        except FlashrtError as error:
            return fill_error(response, error)

    node.create_service(kind, name, answer)
