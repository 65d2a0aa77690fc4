# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

import gc
import threading
import tracemalloc
import weakref
from dataclasses import replace

import pytest
import torch

from flashrt_ros.policy.store import REMEMBERED_EVICTIONS, CapsuleStore
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import ErrorCode


@pytest.fixture
def capsule(make_capsule) -> Capsule:
    return make_capsule()


def names(store: CapsuleStore) -> list[str]:
    return [capsule.name for capsule in store.list()]


def test_the_least_recently_used_go_and_are_remembered(capsule: Capsule, refuses) -> None:
    store = CapsuleStore(3 * capsule.nbytes)
    for name in "abc":
        assert store.add(replace(capsule, name=name)) == ()
    assert store.get("a").name == "a"
    assert store.add(replace(capsule, name="d")) == ("b",)
    assert names(store) == ["c", "a", "d"]
    with refuses(ErrorCode.EVICTED, "capsule b", "pin"):
        store.get("b")
    with refuses(ErrorCode.EVICTED, "capsule b"):
        store.drop("b")
    store.add(replace(capsule, name="b"))
    assert store.get("b").name == "b"
    assert store.usage().evictions == 2
    assert store.usage().used_bytes == 3 * capsule.nbytes


def test_pinned_ones_stay_and_a_refused_one_costs_nothing(capsule: Capsule, refuses) -> None:
    store = CapsuleStore(3 * capsule.nbytes + 5)
    store.add(replace(capsule, name="a"), pinned=True)
    store.add(replace(capsule, name="b"))
    store.add(replace(capsule, name="c"))
    store.pin("c")
    assert store.add(replace(capsule, name="d")) == ("b",)
    store.pin("d")
    with refuses(ErrorCode.OVER_BUDGET, f"asks for {capsule.nbytes}", "5 free", f"{3 * capsule.nbytes} pinned"):
        store.add(replace(capsule, name="e"))
    assert names(store) == ["a", "c", "d"]
    store.pin("a", False)
    assert store.add(replace(capsule, name="e")) == ("a",)


def test_a_pinned_capsule_can_be_dropped_but_not_the_running_start(capsule: Capsule, refuses) -> None:
    store = CapsuleStore(3 * capsule.nbytes)
    store.add(replace(capsule, name="start", automatic=True), pinned=True)
    store.add(replace(capsule, name="mine"), pinned=True)
    with refuses(ErrorCode.PINNED, "capsule start"):
        store.drop("start")
    assert store.drop("mine").name == "mine"
    assert names(store) == ["start"]


def test_nothing_is_evicted_for_one_that_cannot_fit(capsule: Capsule, refuses) -> None:
    store = CapsuleStore(2 * capsule.nbytes - 1)
    store.add(replace(capsule, name="loose"))
    store.pin("loose")
    store.pin("loose", False)
    small = CapsuleStore(capsule.nbytes - 1)
    with refuses(ErrorCode.OVER_BUDGET, "asks for"):
        small.add(capsule)
    with refuses(ErrorCode.OVER_BUDGET, "asks for"):
        store.add(replace(capsule, name="big", rows=replace(capsule.rows, ranges=capsule.rows.ranges * 99)))
    assert names(store) == ["loose"]


def test_names(capsule: Capsule, refuses) -> None:
    store = CapsuleStore(10 * capsule.nbytes)
    longest = "a" * 128
    for name in ("a", "0.B_c-d", longest):
        store.add(replace(capsule, name=name))
        with refuses(ErrorCode.DUPLICATE_NAME, name):
            store.add(replace(capsule, name=name))
        assert name in store
    for name in ("", ".a", "-a", "../a", "a/b", "a b", "ä", "a\n", longest + "a"):
        with refuses(ErrorCode.BAD_NAME, repr(name)[1:-1]):
            store.add(replace(capsule, name=name))
        with refuses(ErrorCode.BAD_NAME):
            store.get(name)
    with refuses(ErrorCode.UNKNOWN_CAPSULE, "named nothing"):
        store.get("nothing")
    store.drop("a")
    with refuses(ErrorCode.UNKNOWN_CAPSULE, "named a"):
        store.get("a")


def test_memory_is_flat_over_many_capsules(make_capsule) -> None:
    store = CapsuleStore(3 * make_capsule().nbytes)
    tensors: list[weakref.ref[torch.Tensor]] = []

    def cycles(first: int) -> int:
        for number in range(first, first + 200):
            capsule = make_capsule(name=f"c{number % 50}", seed=number % 4)
            tensors.extend(weakref.ref(data) for data in (*capsule.small.data, *capsule.rows.data))
            store.add(capsule)
            store.drop(capsule.name)
        del capsule
        assert not any(tensor() is not None for tensor in tensors)
        tensors.clear()
        gc.collect()
        ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/policy/*")])
        return sum(trace.size for trace in ours.traces)

    tracemalloc.start()
    try:
        cycles(0)
        before = cycles(200)
        assert cycles(400) - before < 4096
    finally:
        tracemalloc.stop()
    assert store.usage().used_bytes == 0


def test_remembered_evictions_are_bounded(capsule: Capsule, refuses) -> None:
    store = CapsuleStore(capsule.nbytes)
    for number in range(REMEMBERED_EVICTIONS + 2):
        store.add(replace(capsule, name=f"c{number}"))
    with refuses(ErrorCode.UNKNOWN_CAPSULE):
        store.get("c0")
    with refuses(ErrorCode.EVICTED):
        store.get("c1")


def test_threads_may_share_it(capsule: Capsule) -> None:
    store = CapsuleStore(4 * capsule.nbytes)
    store.add(replace(capsule, name="kept"), pinned=True)
    failures: list[BaseException] = []

    def churn(thread: int) -> None:
        try:
            for number in range(300):
                store.add(replace(capsule, name=f"t{thread}.{number}"))
                usage = store.usage()
                assert usage.used_bytes == usage.capsules * capsule.nbytes <= usage.budget_bytes
                assert "kept" in names(store)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=churn, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failures
    assert store.usage().evictions == 4 * 300 - 3
