# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashrt_ros.policy.capsule_file import encode_capsule
from flashrt_ros.policy.recipe_log import read_log
from flashrt_ros.policy.writer import CapsuleWriter
from flashrt_ros.runtime.buffers import BufferSet
from flashrt_ros.runtime.errors import ErrorCode
from flashrt_ros.runtime.manifest import Manifest

SECONDS = 30.0


@pytest.fixture
def writer(buffers: BufferSet, manifest: Manifest, tmp_path: Path) -> Iterator[CapsuleWriter]:
    writer = CapsuleWriter(tmp_path, 1 << 30, buffers, manifest, lambda name: False, queue_limit=3)
    yield writer
    assert writer.close(SECONDS)


class Disk:
    """Stands still in its first fsync until it is let go."""

    def __init__(self) -> None:
        self.reached, self.released = threading.Event(), threading.Event()
        self._fsync = os.fsync

    def fsync(self, descriptor: int) -> None:
        self.reached.set()
        assert self.released.wait(SECONDS)
        self._fsync(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, writer: CapsuleWriter) -> Iterator[Disk]:
    disk = Disk()
    monkeypatch.setattr(os, "fsync", disk.fsync)
    yield disk
    disk.released.set()
    writer.flush(SECONDS)


def test_tells_when_a_capsule_is_durable(writer: CapsuleWriter, make_capsule, tmp_path: Path) -> None:
    told: list[tuple[str, Path]] = []
    for number in range(3):
        future = writer.write(make_capsule(name=f"c{number}", seed=number))
        future.add_done_callback(lambda done: told.append((threading.current_thread().name, done.result())))
    assert writer.flush(SECONDS)
    assert [path for _, path in told] == [tmp_path / f"c{number}.safetensors" for number in range(3)]
    assert all(writer.is_durable(f"c{number}") for number in range(3))
    assert writer.read("c1").result(SECONDS).boundary.id == "b1"
    writer.remove("c2").result(SECONDS)
    assert not writer.is_durable("c2")
    assert writer.resume_point().result(SECONDS).capsule.name == "c1"


def test_never_waits_for_the_disk(writer: CapsuleWriter, disk: Disk, make_capsule, refuses) -> None:
    running = writer.write(make_capsule(name="running"))
    assert disk.reached.wait(SECONDS)
    waiting = [writer.write(make_capsule(name=f"c{number}", seed=1)) for number in range(3)]
    refused = writer.write(make_capsule(name="late"))
    newer = writer.write(make_capsule(name="c1", seed=2))
    again = writer.write(make_capsule(name="running", seed=2))
    assert not running.done()
    with refuses(ErrorCode.BUSY, "capsule late is not saved", "3 others"):
        refused.result(0)
    with refuses(ErrorCode.BUSY, "running"):
        again.result(0)
    assert waiting[1].cancelled()  # overtaken by the newer one of its name
    assert not writer.flush(0.0)
    assert not any(writer.is_durable(name) for name in ("running", "c0", "late"))
    disk.released.set()
    assert writer.flush(SECONDS)
    assert running.result(0)
    assert writer.read("c1").result(SECONDS).boundary.id == "b2"
    assert newer.result(0).name == "c1.safetensors"
    assert writer.is_durable("c1")


def test_an_older_write_does_not_make_a_newer_one_durable(writer: CapsuleWriter, disk: Disk, make_capsule) -> None:
    writer.write(make_capsule(name="a", seed=1))
    assert disk.reached.wait(SECONDS)
    gate, passed = threading.Event(), threading.Event()
    older = writer.read("a")  # runs between the two writes
    older.add_done_callback(lambda done: (passed.set(), gate.wait(SECONDS)))
    newer = writer.write(make_capsule(name="a", seed=2))
    disk.released.set()
    assert passed.wait(SECONDS)
    assert older.result(0).boundary.id == "b1"
    assert not writer.is_durable("a")
    gate.set()
    newer.result(SECONDS)
    assert writer.is_durable("a")


def test_what_the_disk_lost_is_not_durable(
    writer: CapsuleWriter, make_capsule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses
) -> None:
    writer.write(make_capsule(name="a", seed=1)).result(SECONDS)
    with monkeypatch.context() as patch, refuses(ErrorCode.STORAGE, "No space left"):
        patch.setattr(os, "rename", lambda *paths: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
        writer.write(make_capsule(name="a", seed=2)).result(SECONDS)
    assert not writer.is_durable("a")
    assert writer.read("a").result(SECONDS).boundary.id == "b1"
    assert writer.is_durable("a")


def test_what_the_size_limit_took_is_not_durable(
    buffers: BufferSet, manifest: Manifest, make_capsule, tmp_path: Path
) -> None:
    size = encode_capsule(make_capsule(name="c0"), buffers, time.time_ns()).nbytes
    writer = CapsuleWriter(tmp_path, size + 8, buffers, manifest, lambda name: False)
    writer.write(make_capsule(name="c0"))
    writer.write(make_capsule(name="c1")).result(SECONDS)
    assert [writer.is_durable(name) for name in ("c0", "c1")] == [False, True]
    assert writer.close(SECONDS)


def test_the_newest_head_overtakes_those_that_wait(
    writer: CapsuleWriter, disk: Disk, make_capsule, manifest: Manifest, tmp_path: Path
) -> None:
    heads = [make_capsule(seed=number).boundary for number in range(4)]
    running = writer.follow(heads[0])
    assert disk.reached.wait(SECONDS)
    waiting = [writer.follow(head) for head in heads[1:]]
    assert [future.cancelled() for future in waiting] == [True, True, False]
    disk.released.set()
    assert running.result(SECONDS) is heads[0]
    assert waiting[2].result(SECONDS) is heads[3]
    recorded = read_log(tmp_path, manifest)
    assert recorded is not None
    assert (recorded.boundary, recorded.boundaries) == ("b3", {"b0", "b3"})
    found = writer.resume_point().result(SECONDS)
    assert (found.boundary, found.capsule, len(found.events)) == ("b3", None, 4)


def test_failures_reach_the_caller_and_the_writer_goes_on(
    writer: CapsuleWriter, make_capsule, tmp_path: Path, refuses
) -> None:
    (tmp_path / "taken.safetensors").mkdir()
    with refuses(ErrorCode.STORAGE, "taken.safetensors"):
        writer.write(make_capsule(name="taken")).result(SECONDS)
    with refuses(ErrorCode.BAD_NAME):
        writer.write(make_capsule(name="../out")).result(SECONDS)
    with refuses(ErrorCode.UNKNOWN_CAPSULE, "absent"):
        writer.remove("absent").result(SECONDS)
    with refuses(ErrorCode.UNKNOWN_CAPSULE, "absent"):
        writer.read("absent").result(SECONDS)
    assert not writer.is_durable("taken")
    assert writer.write(make_capsule()).result(SECONDS)
    assert not (tmp_path / ".aside").exists()


def test_close_finishes_and_lets_the_folder_go(
    buffers: BufferSet, manifest: Manifest, make_capsule, tmp_path: Path, refuses
) -> None:
    def take() -> CapsuleWriter:
        return CapsuleWriter(tmp_path, 1 << 30, buffers, manifest, lambda name: False)

    first = take()
    with refuses(ErrorCode.STORAGE, "another process"):
        take()
    written = [first.write(make_capsule(name=f"c{number}")) for number in range(3)]
    assert first.close(SECONDS)
    assert first.close(SECONDS)
    assert all(future.done() for future in written)
    with refuses(ErrorCode.INACTIVE, "closed"):
        first.write(make_capsule()).result(0)
    second = take()
    assert second.resume_point().result(SECONDS).capsule.name == "c2"
    assert second.is_durable("c2")
    assert second.close(SECONDS)


def test_close_gives_up_on_a_disk_that_hangs(
    buffers: BufferSet, manifest: Manifest, make_capsule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = CapsuleWriter(tmp_path, 1 << 30, buffers, manifest, lambda name: False)
    disk = Disk()
    monkeypatch.setattr(os, "fsync", disk.fsync)
    running, waiting = writer.write(make_capsule(name="a")), writer.write(make_capsule(name="b"))
    assert disk.reached.wait(SECONDS)
    assert not writer.close(0.01)
    assert waiting.cancelled()
    disk.released.set()
    assert running.result(SECONDS)


def test_no_newer_capsule_lies_beside_a_log_that_was_given_up(
    writer: CapsuleWriter, make_capsule, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refuses
) -> None:
    def read_only(*values: object, **named: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    capsule = make_capsule()
    writer.follow(capsule.boundary).result(SECONDS)
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", read_only)
        with monkeypatch.context() as inner:
            inner.setattr(os, "fsync", read_only)
            with refuses(ErrorCode.STORAGE, "Read-only"):
                writer.follow(make_capsule(name="next", seed=1).boundary).result(SECONDS)
        with refuses(ErrorCode.STORAGE, ".recipe", "Read-only"):
            writer.write(capsule).result(SECONDS)
    assert writer.write(capsule).result(SECONDS).exists()
    assert not (tmp_path / ".recipe").exists()
