# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Requests by their id: one that comes twice is applied once and answered alike."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from flashrt_ros.node.executor import Future
from flashrt_ros.node.executor_bridge import ExecutorBridge
from flashrt_ros.node.request_bounds import check_bounds
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


@dataclass(frozen=True, slots=True)
class _Entry:
    request: Any
    answer: Future


class RequestLog:
    """Remembers the newest answered requests; those still at work are never forgotten.

    A response of BUSY is not remembered: the request was not applied, and may be tried again under its id.
    """

    def __init__(self, bridge: ExecutorBridge, capacity: int) -> None:
        self._bridge = bridge
        self._capacity = capacity
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    async def once(self, request: Any, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do the work of a request, or wait for the response of the one that had its `request_id` before.

        An empty id is not checked.

        Raises:
            FlashrtError: BAD_REQUEST, the id belongs to a different request; a field is too large.
        """
        check_bounds(request)
        request_id = request.request_id
        if not request_id:
            return await work()
        known = self._entries.get(request_id)
        if known is None:
            return await self._first(request_id, request, work)
        if known.request != request:
            raise FlashrtError(
                ErrorCode.BAD_REQUEST,
                f"request_id '{request_id}' was used for another {type(known.request).__name__}; give each its own",
            )
        self._entries.move_to_end(request_id)
        return await known.answer

    async def _first(self, request_id: str, request: Any, work: Callable[[], Awaitable[Any]]) -> Any:
        answer = Future()
        self._entries[request_id] = _Entry(request, answer)
        response = await work()
        if response.error_code == ErrorCode.BUSY:
            del self._entries[request_id]
        self._bridge.resolve(answer, response)
        self._forget_oldest()
        return response

    def _forget_oldest(self) -> None:
        excess = len(self._entries) - self._capacity
        answered = [name for name, entry in self._entries.items() if entry.answer.done()]
        for name in answered[: max(excess, 0)]:
            del self._entries[name]
