# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from flashrt_ros.policy.folder_index import Kept
from flashrt_ros.policy.store import CapsuleStore
from flashrt_ros.policy.tiers import CapsuleTiers, Tier
from flashrt_ros.policy.writer import CapsuleWriter
from flashrt_ros.runtime.buffers import BufferSet
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import ErrorCode
from flashrt_ros.runtime.manifest import Manifest

SECONDS = 30.0


@pytest.fixture
def store(make_capsule: Callable[..., Capsule]) -> CapsuleStore:
    """Room for two capsules."""
    return CapsuleStore(2 * make_capsule().nbytes)


@pytest.fixture
def writer(store: CapsuleStore, buffers: BufferSet, manifest: Manifest, tmp_path: Path) -> Iterator[CapsuleWriter]:
    writer = CapsuleWriter(tmp_path, 1 << 30, buffers, manifest, store.is_pinned)
    yield writer
    assert writer.close(SECONDS)


@pytest.fixture
def tiers(store: CapsuleStore, writer: CapsuleWriter, manifest: Manifest) -> CapsuleTiers:
    return CapsuleTiers(store, writer, manifest)


def told(tiers: CapsuleTiers) -> list[tuple[str, Tier, bool]]:
    """Name, tier and durability of each."""
    return [((held.capsule or held.info).name, held.tier, held.durable) for held in tiers.list()]


def test_what_leaves_memory_lies_on_the_disk(
    store: CapsuleStore, writer: CapsuleWriter, tiers: CapsuleTiers, make_capsule, buffers: BufferSet, refuses
) -> None:
    capsules = [make_capsule(name=name, seed=seed) for seed, name in enumerate("abc")]
    for capsule in capsules:
        store.add(capsule)
        writer.write(capsule).result(SECONDS)
    assert told(tiers) == [("b", Tier.HOST, True), ("c", Tier.HOST, True), ("a", Tier.DISK, True)]
    (held,) = (held for held in tiers.list() if held.info is not None)
    assert held.info.sha256 == capsules[0].sha256(buffers)
    assert held.foreign == ""
    store.add(writer.read("a").result(SECONDS))
    assert told(tiers) == [("c", Tier.HOST, True), ("a", Tier.HOST, True), ("b", Tier.DISK, True)]
    with refuses(ErrorCode.EVICTED, "capsule b"):
        store.get("b")
    assert tiers.drop("b") == 0
    with refuses(ErrorCode.UNKNOWN_CAPSULE, "named b"):
        store.get("b")


def test_one_name_means_one_capsule(
    store: CapsuleStore, writer: CapsuleWriter, tiers: CapsuleTiers, make_capsule, refuses
) -> None:
    writer.write(make_capsule(name="a")).result(SECONDS)
    tiers.check_new("b")
    with refuses(ErrorCode.DUPLICATE_NAME, "capsule a", "on the disk"):
        tiers.check_new("a")
    assert tiers.drop("a") == 0
    tiers.check_new("a")  # although its file may still be there
    assert told(tiers) == []
    with refuses(ErrorCode.UNKNOWN_CAPSULE, "named a"):
        tiers.drop("a")
    with refuses(ErrorCode.BAD_NAME):
        tiers.drop("../a")
    assert writer.flush(SECONDS)
    assert writer.file("a") is None


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Set when the disk is waited for, and to be set for it to answer."""
    reached, released, fsync = threading.Event(), threading.Event(), os.fsync

    def hang(descriptor: int) -> None:
        reached.set()
        assert released.wait(SECONDS)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", hang)
    return reached, released


@pytest.fixture
def being_written(
    store: CapsuleStore, writer: CapsuleWriter, make_capsule, slow_disk: tuple[threading.Event, threading.Event]
) -> Capsule:
    """One in memory, whose write has begun."""
    capsule: Capsule = make_capsule(name="running")
    store.add(capsule)
    writer.write(capsule)
    assert slow_disk[0].wait(SECONDS)
    return capsule


@pytest.fixture
def finish(writer: CapsuleWriter, slow_disk: tuple[threading.Event, threading.Event]) -> Callable[[], None]:
    """Let the disk go on, and wait until all is written."""

    def end() -> None:
        slow_disk[1].set()
        assert writer.flush(SECONDS)

    return end


def test_drop_takes_it_from_every_tier_also_one_that_waits_for_the_disk(
    store: CapsuleStore,
    writer: CapsuleWriter,
    tiers: CapsuleTiers,
    make_capsule,
    slow_disk: tuple[threading.Event, threading.Event],
    tmp_path: Path,
) -> None:
    reached, released = slow_disk
    waiting = make_capsule(name="waiting")
    writer.write(make_capsule(name="running"))
    assert reached.wait(SECONDS)
    store.add(waiting)
    unwritten = writer.write(waiting)
    store.add(make_capsule(name="b"))
    store.add(make_capsule(name="c"))
    assert ("waiting", Tier.DISK, False) in told(tiers)
    tiers.drop("waiting")
    assert unwritten.cancelled()
    assert tiers.drop("c") == waiting.nbytes
    assert told(tiers) == [("b", Tier.HOST, False), ("running", Tier.DISK, False)]
    released.set()
    assert writer.flush(SECONDS)
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == ["running.safetensors"]


def test_one_that_leaves_memory_while_it_is_written_is_told_and_can_be_had(
    store: CapsuleStore,
    writer: CapsuleWriter,
    tiers: CapsuleTiers,
    make_capsule,
    being_written: Capsule,
    finish: Callable[[], None],
) -> None:
    for name in "bc":
        store.add(make_capsule(name=name))
    assert told(tiers)[-1] == ("running", Tier.DISK, False)
    assert writer.coming() == [being_written]
    finish()
    assert told(tiers)[-1] == ("running", Tier.DISK, True)


def test_drop_takes_one_that_is_being_written_too(
    tiers: CapsuleTiers, being_written: Capsule, finish: Callable[[], None], tmp_path: Path
) -> None:
    assert tiers.drop("running") == being_written.nbytes
    assert told(tiers) == []
    tiers.check_new("running")
    finish()
    assert told(tiers) == []
    assert list(tmp_path.glob("[!.]*")) == []


def test_drop_takes_one_whose_write_ends_meanwhile(
    writer: CapsuleWriter,
    tiers: CapsuleTiers,
    being_written: Capsule,
    finish: Callable[[], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look = writer.file

    def file(name: str) -> Kept | None:
        found = look(name)
        finish()
        return found

    monkeypatch.setattr(writer, "file", file)
    tiers.drop("running")
    finish()
    assert list(tmp_path.glob("[!.]*")) == []


def test_one_that_leaves_memory_meanwhile_is_listed_once(
    store: CapsuleStore,
    writer: CapsuleWriter,
    tiers: CapsuleTiers,
    being_written: Capsule,
    finish: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coming = writer.coming
    monkeypatch.setattr(writer, "coming", lambda: [store.drop("running"), coming()][1])
    assert [name for name, _, _ in told(tiers)] == ["running"]
    finish()


def test_a_foreign_one_says_why_and_device_memory_is_a_tier(
    store: CapsuleStore, writer: CapsuleWriter, tiers: CapsuleTiers, make_capsule, manifest: Manifest
) -> None:
    foreign = replace(make_capsule(name="foreign"), manifest={**manifest, "weights": {}})
    writer.write(foreign).result(SECONDS)
    (held,) = tiers.list()
    assert held.foreign == "weights.model.safetensors: expected 0123, found None"
    store.add(writer.read("foreign", foreign=True).result(SECONDS))
    (held,) = tiers.list()
    assert (held.tier, held.foreign[:7]) == (Tier.DISK, "weights")  # its bytes have stayed there
    capsule = make_capsule(name="far")
    elsewhere = tuple(torch.empty_like(part, device="meta") for part in capsule.rows.data)
    store.add(replace(capsule, rows=replace(capsule.rows, data=elsewhere)))
    assert ("far", Tier.DEVICE, False) in told(tiers)


def test_pins_of_the_disk_are_told(
    store: CapsuleStore, writer: CapsuleWriter, tiers: CapsuleTiers, make_capsule, manifest: Manifest
) -> None:
    store.add(make_capsule(name="pinned"), pinned=True)
    writer.write(store.get("pinned")).result(SECONDS)
    loaded = CapsuleStore(1 << 20)
    other = CapsuleTiers(loaded, writer, manifest)  # as the next process sees it
    assert [held.pinned for held in other.list()] == [True]
    loaded.add(writer.read("pinned").result(SECONDS))
    assert [held.pinned for held in other.list()] == [True]
    tiers.drop("pinned")
    assert writer.flush(SECONDS)
    assert not writer.is_pinned("pinned")
