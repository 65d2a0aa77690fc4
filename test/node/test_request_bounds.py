# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from flashrt_ros.node.interfaces import action, srv
from flashrt_ros.node.rate_limit import RateLimit
from flashrt_ros.node.request_bounds import BOUNDS, check_bounds
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

REQUESTS = [
    getattr(srv, name).Request for name in dir(srv) if name[0].isupper() and hasattr(getattr(srv, name), "Request")
]


@pytest.mark.parametrize("kind", [*REQUESTS, action.RunPolicy.Goal], ids=lambda kind: kind.__name__)
def test_every_text_and_list_of_a_request_is_bounded(kind: type) -> None:
    sized = [
        name for name, type_ in kind.get_fields_and_field_types().items() if type_ == "string" or "sequence" in type_
    ]
    assert sized
    for name in sized:
        limit, code = BOUNDS[name]
        item = "x" if isinstance(getattr(kind(), name), str) else [1]
        check_bounds(kind(**{name: item * limit}))
        with pytest.raises(FlashrtError, match=f"{name} has {limit + 1} .*{limit} are allowed") as refused:
            check_bounds(kind(**{name: item * (limit + 1)}))
        assert refused.value.code is code


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_verb_is_refused_beyond_its_rate_and_another_is_not() -> None:
    clock = Clock()
    limit = RateLimit(10.0, clock)
    for _ in range(20):
        limit.take("snapshot")
    with pytest.raises(
        FlashrtError, match=r"snapshot is called more than 10 times a second; try again in 0\.100 s"
    ) as busy:
        limit.take("snapshot")
    assert busy.value.code is ErrorCode.BUSY
    assert limit.refused == 1
    limit.take("restore")
    clock.now += 0.11
    limit.take("snapshot")
    with pytest.raises(FlashrtError):
        limit.take("snapshot")


def test_a_client_at_the_rate_is_never_refused_and_a_low_rate_lets_the_first_call_in() -> None:
    clock = Clock()
    limit = RateLimit(20.0, clock)
    for _ in range(1000):
        clock.now += 0.05001
        limit.take("snapshot")
    clock.now += 3600.0
    for _ in range(40):  # a burst of two seconds, however long the pause was
        limit.take("snapshot")
    with pytest.raises(FlashrtError):
        limit.take("snapshot")
    slow = RateLimit(0.1, clock)
    slow.take("snapshot")
    clock.now += 9.0
    with pytest.raises(FlashrtError):
        slow.take("snapshot")
    clock.now += 2.0
    slow.take("snapshot")
