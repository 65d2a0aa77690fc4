# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The room for capsules is full: what goes, what stays, and what is answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("flashrt_interfaces")

from flashrt_ros.runtime.errors import ErrorCode

MANY = 100


@pytest.fixture
def held(nodes: Any, client: Any) -> Iterator[str]:
    """The digest of a live state that stands still; afterwards no capsule of the test's is left."""
    client.move(instruction="press the button that lit up")
    assert client.call("reset").error_code == ErrorCode.NONE
    yield client.digest("before")
    for capsule in client.call("list_capsules").capsules:
        client.call("drop_capsule", name=capsule.name)


def test_a_capsule_evicted_from_memory_and_disk_is_told_from_an_unknown_one(client: Any, until: Any, held: str) -> None:
    numbers = iter(range(MANY))

    def gone() -> bool:
        name = f"some.{next(numbers)}"
        for verb in ("snapshot", "save_capsule"):
            assert client.call(verb, name=name).error_code == ErrorCode.NONE
        return all(capsule.name != "before" for capsule in client.call("list_capsules").capsules)

    until(gone, "the eviction")
    assert client.call("list_capsules").evictions > 0
    refused = client.call("restore", name="before")
    assert refused.error_code == ErrorCode.EVICTED
    assert "before" in refused.error_msg
    assert client.digest("after") == held


def test_pinned_capsules_stay_and_the_next_one_is_refused(client: Any, held: str) -> None:
    pinned = []
    for number in range(MANY):
        response = client.call("snapshot", name=f"pinned.{number}", pinned=True)
        if response.error_code:
            break
        pinned.append(response.capsule.name)
    assert response.error_code == ErrorCode.OVER_BUDGET
    assert response.error_msg
    listed = client.call("list_capsules")
    assert set(pinned) <= {capsule.name for capsule in listed.capsules}
    assert listed.bytes_used <= listed.bytes_budget
    assert client.call("drop_capsule", name=pinned[0]).bytes_freed > 0
    assert client.digest("after") == held
