# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the flight recorder keeps, what it lets go, and how it writes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from flashrt_ros.node.incident import IncidentFolder, Situation
from flashrt_ros.node.recorder_ring import Item, Ring, Window
from flashrt_ros.policy.replay_bag import Bag
from flashrt_ros.policy.replay_incident import is_incident, read_incident
from flashrt_ros.policy.replay_record import Record
from flashrt_ros.runtime.backend import Saved
from flashrt_ros.runtime.buffers import Buffer, BufferSet
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary, Rows
from flashrt_ros.runtime.recipe import Begin, Recipe

S = 1_000_000_000
CAMERA, GATE, LOG, JOINTS = "/camera", "/command/gate", "/policy/boundary", "/joint_states"
RAW = b"\x00\x01\x00\x00" + bytes(96)


def ring(seconds: float = 10.0, budget: int = 1 << 20) -> Ring:
    return Ring(seconds, budget, [CAMERA], [GATE])


def capsule(name: str, boundary: str) -> Capsule:
    held = Boundary(boundary, "observe", "", Rows(), Recipe(None, Begin("push", 1)), "push", 0, ())
    return Capsule(name, "", "", held, {}, Saved((), ()), Saved((), ()))


def record(ring: Ring, time: int, verb: str, boundary: str, name: str = "", used: int | None = None) -> None:
    held = capsule(name, boundary) if name and verb != "snapshot" else None
    item = Item(time, LOG, RAW, Record(verb, boundary=boundary, capsule=name), held)
    ring.add_record(item, [(CAMERA, used)] if used is not None else [])


def kept(window: Window, topic: str) -> list[int]:
    return [item.time for item in window.items if item.topic == topic]


def test_it_begins_at_the_newest_start_that_is_old_enough() -> None:
    held = ring(10.0)
    for number in range(8):
        record(held, number * 5 * S, "begin", f"b{number}", f"start{number}")
        held.add(number * 5 * S + 1, JOINTS, RAW)
    window = held.window()
    assert kept(window, LOG) == [n * 5 * S for n in (5, 6, 7)]
    assert [c.name for c in window.capsules] == ["start5"]
    assert kept(window, JOINTS)[0] == 25 * S + 1


def test_it_asks_for_the_state_when_the_start_gets_old() -> None:
    held = ring(10.0)
    assert held.state_wanted()
    record(held, 0, "begin", "b0", "start")
    record(held, 9 * S, "act", "b1")
    assert not held.state_wanted()
    record(held, 10 * S, "act", "b2")
    assert held.state_wanted()
    record(held, 11 * S, "resume", "b2", "resume.4")
    assert not held.state_wanted()


def test_it_asks_for_the_state_behind_a_rollback_to_before_the_start() -> None:
    held = ring()
    record(held, 0, "begin", "b0", "start")
    record(held, 1, "act", "b1")
    record(held, 2, "rollback", "b0")
    assert not held.state_wanted()
    record(held, 3, "restore", "c7", "before")
    record(held, 4, "rollback", "b1")
    assert held.state_wanted()


def test_memory_is_bounded_whatever_happens() -> None:
    held = ring(1000.0, budget=10_000)
    record(held, 0, "begin", "b0", "start")
    for time in range(1, 1000):
        held.add(time, JOINTS, RAW)
        held.add_image(time, CAMERA, time, RAW)
        assert held.nbytes <= 10_000
    assert held.state_wanted()
    assert kept(held.window(), LOG) == []  # the start had to go, and no other came


def test_of_the_images_only_the_used_ones_stay() -> None:
    held = ring(1000.0)
    record(held, 0, "begin", "b0", "start")
    for time in range(0, 20 * S, S):
        held.add_image(time + 1, CAMERA, time, RAW)
        if time % (5 * S) == 0:
            record(held, time + 2, "observe", f"b{time}", used=time)
    late = 16 * S
    held.add_image(20 * S, CAMERA, 15 * S, RAW)  # shown again behind its use
    assert [t for t in kept(held.window(), CAMERA) if t < late] == [1, 5 * S + 1, 10 * S + 1, 15 * S + 1]
    assert 20 * S in kept(held.window(), CAMERA)
    assert len(kept(held.window(), CAMERA)) <= 8


def test_the_newest_latched_message_from_before_stays() -> None:
    held = ring(10.0)
    held.add(0, GATE, RAW)
    held.add(1, GATE, RAW)
    for number in range(5):
        record(held, 10 + number * 20 * S, "begin", f"b{number}", f"start{number}")
    assert kept(held.window(), GATE) == [1]


def test_it_names_the_capsules_that_the_log_does_not_make() -> None:
    held = ring(1000.0)
    record(held, 0, "begin", "b0", "start")
    record(held, 1, "snapshot", "b0", "made")
    record(held, 2, "restore", "b0", "made")
    record(held, 3, "restore", "a9", "older")
    assert [c.name for c in held.window().capsules] == ["start", "older"]


# ---- incidents ----


@pytest.fixture
def situation(tmp_path: Path) -> Situation:
    buffers = BufferSet(
        [Buffer("generator", (2,), torch.int64, "state", "generator")],
        lambda nbytes, memory: torch.zeros(nbytes, dtype=torch.uint8),
    )
    return Situation("/policy", "ckpt", "a: contract", {"threads": 1}, {"weights": {"a": "b"}}, buffers, lambda: "held")


@pytest.fixture
def window() -> Window:
    items = (
        Item(1, LOG, RAW, Record("begin", 1, boundary="b0", instruction="push")),
        Item(2, JOINTS, RAW),
        Item(3, LOG, RAW, Record("observe", 2, boundary="b1", error_code=int(ErrorCode.NOT_FINITE))),
    )
    return Window(items)


TYPES = {
    LOG: "flashrt_interfaces/msg/BoundaryRecord",
    JOINTS: "sensor_msgs/msg/JointState",
    CAMERA: "sensor_msgs/msg/Image",
}


def test_an_incident_says_what_happened(tmp_path: Path, window: Window, situation: Situation) -> None:
    path = IncidentFolder(tmp_path / "incidents", 1 << 30).write("arm: too hot!", window, TYPES, situation)
    assert path.name.endswith("Z_arm_too_hot")
    assert is_incident(path)
    assert (read_incident(path).reason, read_incident(path).manifest) == ("arm: too hot!", situation.manifest)
    assert (path / "contract.yaml").read_text() == "a: contract"
    assert "| 2 | observe | b1 |  | 0.0 | NOT_FINITE |" in (path / "summary.md").read_text()
    with Bag(path / "bag") as bag:
        assert bag.types == TYPES  # a topic without a message is there too
        assert [(topic, time) for topic, time, _ in bag.messages(list(TYPES))] == [(LOG, 1), (JOINTS, 2), (LOG, 3)]


def test_the_disk_is_bounded_and_the_newest_stays(tmp_path: Path, window: Window, situation: Situation) -> None:
    folder = IncidentFolder(tmp_path / "incidents", 1)
    paths = [folder.write(f"number {n}", window, TYPES, situation) for n in range(3)]
    assert [path for path in paths if path.exists()] == paths[-1:]


def test_two_of_a_second_have_their_own_names(tmp_path: Path, window: Window, situation: Situation) -> None:
    folder = IncidentFolder(tmp_path / "incidents", 1 << 30)
    assert len({folder.write("twice", window, TYPES, situation) for _ in range(3)}) == 3


def test_what_the_disk_refuses_leaves_nothing_half(
    tmp_path: Path, window: Window, situation: Situation, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "incidents"

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FlashrtError, match="No space left on device") as refused:
        IncidentFolder(folder, 1 << 30).write("full", window, TYPES, situation)
    assert refused.value.code is ErrorCode.STORAGE
    assert list(folder.iterdir()) == []


def test_an_incident_of_another_schema_is_refused(tmp_path: Path) -> None:
    for text in ("{", json.dumps({"schema": 99, "reason": "", "manifest": {}})):
        (tmp_path / "incident.json").write_text(text)
        with pytest.raises(FlashrtError) as refused:
            read_incident(tmp_path)
        assert refused.value.code is ErrorCode.DAMAGED
