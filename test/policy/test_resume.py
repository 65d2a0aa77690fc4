# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A process ends without a word; the next one goes on at its newest durable boundary."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

from flashrt_ros.policy.loading import Policy
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.resume import ResumePoint
from flashrt_ros.policy.session import Mode, Session
from flashrt_ros.policy.writer import CapsuleWriter
from flashrt_ros.runtime.errors import ErrorCode
from flashrt_ros.tools.audit import random_observation

SECONDS = 30.0


class Process:
    """A session and its folder, as a process has them."""

    def __init__(self, policy: Policy, folder: Path) -> None:
        for spec in policy.plan.buffers.state():
            policy.plan.buffers[spec.name].zero_()
        self.session = Session(policy)
        self.writer = CapsuleWriter(
            folder, 1 << 30, policy.plan.buffers, policy.manifest(), self.session.store.is_pinned
        )
        self.followed: list[Future] = []
        self.session.on_head = lambda head: self.followed.append(self.writer.follow(head))

    def save(self, name: str) -> None:
        capsule = self.session.snapshot(name).capsule
        assert capsule is not None
        self.writer.write(capsule).result(SECONDS)

    def end(self) -> dict[str, str]:
        """The state at the end; what is planned is not taken up again."""
        head = self.session.head
        assert head is not None
        assert self.followed[-1].result(SECONDS).id == head.id
        self.session.discard_plan()
        assert self.writer.close(SECONDS)
        return self.session.digests()

    def resume(self) -> ResumePoint:
        found = self.writer.resume_point().result(SECONDS)
        if found.boundary:
            self.session.resume(found.boundary, found.capsule, found.events)
        return found


@pytest.fixture
def start(policy: Policy, tmp_path: Path) -> Callable[[], Process]:
    return lambda: Process(policy, tmp_path / "capsules")


@pytest.fixture
def seen(policy: Policy) -> list[Observation]:
    random = np.random.default_rng(3)
    return [random_observation(policy, random, stamp) for stamp in range(1, 20)]


def step(session: Session, observation: Observation) -> None:
    session.observe(observation)
    session.executed(session.act().act_index, 3)


def kinds(found: ResumePoint) -> list[str]:
    return [type(event).__name__ for event in found.events]


def test_an_empty_folder_has_nothing(start: Callable[[], Process]) -> None:
    second = start()
    assert second.resume() == ResumePoint("", None, (), ())
    assert second.writer.close(SECONDS)


def test_it_goes_on_at_the_very_bytes(start: Callable[[], Process], seen: list[Observation]) -> None:
    first = start()
    first.session.begin("press the button", seed=5)
    step(first.session, seen[0])
    first.save("nearest")
    first.session.executed(1, 5)  # the capsule holds an earlier word on that chunk
    step(first.session, seen[1])
    step(first.session, seen[2])
    boundary = first.session.head.id
    expected = first.end()
    second = start()
    found = second.resume()
    assert (found.boundary, found.capsule.name, found.skipped) == (boundary, "nearest", ())
    assert kinds(found) == ["Executed", "Observe", "Act", "Executed", "Observe", "Act"]
    assert second.session.head.id == boundary
    assert second.session.digests() == expected
    step(second.session, seen[3])
    expected = second.end()
    third = start()
    assert kinds(third.resume())[-1] == "Act"
    assert third.session.digests() == expected
    assert third.writer.close(SECONDS)


def test_without_a_capsule_on_the_way_it_begins_at_the_first_input(
    start: Callable[[], Process], seen: list[Observation], tmp_path: Path
) -> None:
    first = start()
    first.session.begin("press the button", seed=5)
    step(first.session, seen[0])
    step(first.session, seen[1])
    first.save("left")
    first.session.rollback(2)
    step(first.session, seen[2])
    expected = first.end()
    second = start()
    found = second.resume()
    assert found.capsule is None
    assert second.session.digests() == expected
    second.end()


def test_a_damaged_capsule_is_passed_over(
    start: Callable[[], Process], seen: list[Observation], tmp_path: Path
) -> None:
    first = start()
    first.session.begin("press the button", seed=5)
    first.save("far")
    step(first.session, seen[0])
    first.save("near")
    step(first.session, seen[1])
    expected = first.end()
    path = tmp_path / "capsules" / "near.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))  # its header stays whole
    second = start()
    found = second.resume()
    assert found.capsule.name == "far"
    assert [error.code for error in found.skipped] == [ErrorCode.DAMAGED]
    assert second.session.digests() == expected
    second.end()


def test_a_restored_capsule_is_the_newest_boundary(start: Callable[[], Process], seen: list[Observation]) -> None:
    first = start()
    first.session.begin("press the button", seed=5)
    step(first.session, seen[0])
    first.save("kept")
    step(first.session, seen[1])
    first.save("later")
    first.session.restore("kept")
    boundary = first.session.head.id
    expected = first.end()
    second = start()
    found = second.resume()
    assert (found.boundary, found.capsule.name) == (boundary, "kept")
    assert kinds(found) == ["Discard"]
    assert second.session.digests() == expected
    second.end()


def test_the_recipe_of_a_full_context_is_bounded(start: Callable[[], Process], seen: list[Observation]) -> None:
    first = start()
    first.session.begin("press the button", seed=5)
    for observation in [*seen, *seen]:
        step(first.session, observation)
    assert any(capsule.name.startswith("compacted") for capsule in first.session.store.list())
    expected = first.end()
    second = start()
    found = second.resume()
    assert len(found.events) < 2 * 3 * len(seen)
    assert second.session.digests() == expected
    second.end()


def test_rollback_goes_back_over_what_was_rebuilt(start: Callable[[], Process], seen: list[Observation]) -> None:
    first = start()
    first.session.begin("press the button", seed=5)
    step(first.session, seen[0])
    first.session.observe(seen[1])
    expected = first.session.digests()
    first.session.act()
    first.end()
    second = start()
    second.resume()
    second.session.rollback(1, Mode.EXACT)
    assert second.session.digests() == expected
    second.end()
