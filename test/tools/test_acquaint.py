# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A client that its server has not found yet."""

from __future__ import annotations

import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from flashrt_ros.tools.acquaint import until_known


class Service:
    """Answers from the request on that it is told to; time passes only while somebody waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, found_at: int) -> None:
        self.now, self.asked, self.found_at = 0.0, [], found_at
        self.given_up: list[Any] = []
        self.client = SimpleNamespace(
            srv_name="list",
            wait_for_service=lambda patience: True,
            call_async=self._call,
            remove_pending_request=self.given_up.append,
        )
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def _call(self, request: object) -> Future[object]:
        self.asked.append(request)
        return Future()

    def spin(self, future: Future[object], seconds: float) -> None:
        if len(self.asked) >= self.found_at:
            future.set_result(None)
        else:
            self.now += seconds


def test_what_was_not_answered_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(monkeypatch, found_at=3)
    until_known(service.client, "list", service.spin, 20.0)
    assert service.asked == ["list"] * 3
    assert len(service.given_up) == 2


def test_what_never_answers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(monkeypatch, found_at=99)
    with pytest.raises(TimeoutError, match="list has not answered for 5 s"):
        until_known(service.client, "list", service.spin, 5.0)
    assert service.now == 5.0
    service.client.wait_for_service = lambda patience: False
    with pytest.raises(TimeoutError, match="list is not there"):
        until_known(service.client, "list", service.spin, 5.0)
