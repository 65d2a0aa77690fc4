# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

import errno
import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from flashrt_ros.policy.capsule_file import encode_capsule
from flashrt_ros.policy.capsule_info import FORMAT, input_digests, path_of
from flashrt_ros.policy.recipe_log import LOG, RecipeLog, Recorded, read_log
from flashrt_ros.policy.tensor_file import open_checked
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary, Rows
from flashrt_ros.runtime.manifest import Manifest
from flashrt_ros.runtime.recipe import Act, Begin, Executed, Observe, Recipe

PLENTY = 1 << 20


def boundary(name: str, recipe: Recipe) -> Boundary:
    return Boundary(name, "act", "", Rows(), recipe, "push", 0, ())


def seen(recipe: Recipe, stamp: int) -> Recipe:
    image = np.full((6, 5, 3), stamp % 256, np.uint8)
    return recipe.then(Observe({"front": image}, np.array([0.5, stamp]), stamp)).then(Act())


def readable(folder: Path, manifest: Manifest) -> Recorded | None:
    """What a log gives; None where it says that it is damaged."""
    try:
        return read_log(folder, manifest)
    except FlashrtError as error:
        if error.code is not ErrorCode.DAMAGED:
            raise
        return None


def stamps(folder: Path, manifest: Manifest) -> list[int]:
    recorded = read_log(folder, manifest)
    assert recorded is not None
    return [event.stamp for event in recorded.events if isinstance(event, Observe)]


@pytest.fixture
def log(manifest: Manifest, tmp_path: Path) -> RecipeLog:
    return RecipeLog(tmp_path, manifest, PLENTY)


@pytest.fixture
def start() -> Recipe:
    return Recipe(None, Begin("push", 7))


def test_the_newest_head_comes_back_with_all_its_inputs(
    log: RecipeLog, start: Recipe, manifest: Manifest, tmp_path: Path
) -> None:
    assert read_log(tmp_path, manifest) is None
    first = seen(start, 1)
    log.follow(boundary("b1", first))
    log.follow(boundary("b3", seen(first, 2).then(Executed(2, 3)).then(Executed(2, 5))))
    recorded = read_log(tmp_path, manifest)
    assert recorded is not None
    assert (recorded.boundary, recorded.boundaries, recorded.lost_bytes) == ("b3", {"b1", "b3"}, 0)
    begin, observe, _, _, _, executed = recorded.events
    assert isinstance(begin, Begin)
    assert (begin.instruction, begin.seed) == ("push", 7)
    assert isinstance(observe, Observe)
    np.testing.assert_array_equal(observe.images["front"], np.full((6, 5, 3), 1, np.uint8))
    np.testing.assert_array_equal(observe.state, [0.5, 1.0])
    assert isinstance(executed, Executed)
    assert executed.cursor == 5


def test_inputs_branch_off_after_a_rollback_and_are_written_once(
    log: RecipeLog, start: Recipe, manifest: Manifest, tmp_path: Path
) -> None:
    first = seen(start, 1)
    log.follow(boundary("left", seen(seen(first, 2), 3)))
    size = (tmp_path / LOG).stat().st_size
    log.follow(boundary("back", first))
    log.follow(boundary("right", seen(first, 4)))
    assert (tmp_path / LOG).stat().st_size < 2 * size
    assert stamps(tmp_path, manifest) == [1, 4]
    other = seen(Recipe(None, Begin("pull", 7)), 5)
    log.follow(boundary("other", other))
    assert stamps(tmp_path, manifest) == [5]
    log.follow(boundary("right again", seen(seen(first, 4), 6)))
    assert stamps(tmp_path, manifest) == [1, 4, 6]


def test_its_size_is_bounded(start: Recipe, manifest: Manifest, tmp_path: Path, refuses) -> None:
    limit = 40_000
    log = RecipeLog(tmp_path, manifest, limit)
    recipe, sizes = start, []
    for stamp in range(200):
        recipe = seen(recipe if stamp % 4 else start, stamp)
        log.follow(boundary(f"b{stamp}", recipe))
        sizes.append((tmp_path / LOG).stat().st_size)
    assert max(sizes) <= limit
    assert sizes != sorted(sizes)  # it was begun anew
    assert stamps(tmp_path, manifest) == [196, 197, 198, 199]
    for stamp in range(60):
        recipe = seen(recipe, stamp)
    with refuses(ErrorCode.OVER_BUDGET, str(tmp_path / LOG), "boundary long", str(limit)):
        log.follow(boundary("long", recipe))
    assert read_log(tmp_path, manifest) is None  # it would hide a newer capsule
    log.follow(boundary("short", seen(start, 9)))
    assert stamps(tmp_path, manifest) == [9]


def test_one_that_is_begun_anew_has_room(
    log: RecipeLog, start: Recipe, manifest: Manifest, tmp_path: Path, refuses
) -> None:
    head = boundary("head", seen(start, 1))
    log.follow(head)
    size = (tmp_path / LOG).stat().st_size
    with refuses(ErrorCode.OVER_BUDGET, "more than half"):
        RecipeLog(tmp_path, manifest, 2 * size - 2).follow(head)
    RecipeLog(tmp_path, manifest, 2 * size).follow(head)
    assert stamps(tmp_path, manifest) == [1]


def test_an_earlier_process_log_stays_until_the_first_head(
    log: RecipeLog, start: Recipe, manifest: Manifest, tmp_path: Path
) -> None:
    log.follow(boundary("old", seen(start, 1)))
    second = RecipeLog(tmp_path, manifest, PLENTY)
    assert stamps(tmp_path, manifest) == [1]
    second.follow(boundary("new", seen(start, 2)))
    assert stamps(tmp_path, manifest) == [2]


def test_a_torn_end_counts_as_not_there(log: RecipeLog, start: Recipe, manifest: Manifest, tmp_path: Path) -> None:
    path, ends, recipe = tmp_path / LOG, {}, start
    for stamp in range(1, 4):
        recipe = seen(recipe, stamp)
        log.follow(boundary(f"b{stamp}", recipe))
        ends[path.stat().st_size] = stamp
    whole = path.read_bytes()
    for cut in range(0, len(whole), 17):
        path.write_bytes(whole[:cut])
        heads = [stamp for end, stamp in ends.items() if end <= cut]
        recorded = readable(tmp_path, manifest)
        if not heads:
            assert recorded is None
            continue
        assert recorded is not None
        assert recorded.boundary == f"b{heads[-1]}"
        last = max(end for end in ends if end <= cut)
        assert recorded.lost_bytes <= cut - last
    print(f"{len(range(0, len(whole), 17))} cuts")


def test_a_flipped_bit_costs_what_is_behind_it_and_is_never_taken_for_an_input(
    log: RecipeLog, start: Recipe, manifest: Manifest, tmp_path: Path
) -> None:
    path, recipe, ends = tmp_path / LOG, start, []
    for stamp in range(1, 4):
        recipe = seen(recipe, stamp)
        log.follow(boundary(f"b{stamp}", recipe))
        ends.append(path.stat().st_size)
    whole, digests = path.read_bytes(), read_log(tmp_path, manifest).digests
    for point in range(0, len(whole), 13):
        broken = bytearray(whole)
        broken[point] ^= 1 << point % 8
        path.write_bytes(broken)
        recorded = readable(tmp_path, manifest)
        whole_heads = sum(end <= point for end in ends)
        assert (recorded.boundary if recorded is not None else "b0") == f"b{whole_heads}", point
        if recorded is not None:
            assert recorded.digests == digests[: len(recorded.digests)]
    print(f"{len(range(0, len(whole), 13))} flipped bits")


def test_a_log_of_another_policy_is_not_followed(
    log: RecipeLog, start: Recipe, manifest: Manifest, tmp_path: Path, refuses
) -> None:
    log.follow(boundary("b", start))
    with refuses(ErrorCode.MANIFEST_MISMATCH, str(tmp_path / LOG), "weights.model.safetensors: expected other"):
        read_log(tmp_path, {**manifest, "weights": {"model.safetensors": "other"}})


@pytest.mark.parametrize("call", ["fsync", "rename", "open"])
def test_a_log_that_cannot_be_written_goes(
    log: RecipeLog,
    start: Recipe,
    manifest: Manifest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    refuses,
) -> None:
    def full(*values: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if call != "rename":
        log.follow(boundary("before", seen(start, 1)))
    with monkeypatch.context() as patch, refuses(ErrorCode.STORAGE, str(tmp_path / LOG), "No space left"):
        patch.setattr(os, call, full)
        log.follow(boundary("lost", seen(start, 2)))
    assert list(tmp_path.iterdir()) == []
    log.follow(boundary("after", seen(start, 3)))
    assert stamps(tmp_path, manifest) == [3]


def test_a_log_that_can_be_neither_written_nor_removed_lets_no_newer_capsule_be_written(
    log: RecipeLog, start: Recipe, manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses
) -> None:
    def read_only(*values: object, **named: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    log.follow(boundary("before", seen(start, 1)))
    log.remove_given_up()
    assert stamps(tmp_path, manifest) == [1]
    with monkeypatch.context() as patch:
        for call in ("fsync", "unlink"):
            patch.setattr(os, call, read_only)
        with refuses(ErrorCode.STORAGE, str(tmp_path / LOG), "Read-only"):
            log.follow(boundary("lost", seen(start, 2)))
        with refuses(ErrorCode.STORAGE, str(tmp_path / LOG), "Read-only"):
            log.remove_given_up()
    log.remove_given_up()
    assert read_log(tmp_path, manifest) is None
    log.follow(boundary("after", seen(start, 3)))
    log.remove_given_up()
    assert stamps(tmp_path, manifest) == [3]


def test_a_file_in_the_place_of_the_folder_is_a_storage_error(
    start: Recipe, manifest: Manifest, tmp_path: Path, refuses
) -> None:
    folder = tmp_path / "capsules"
    folder.write_text("")
    with refuses(ErrorCode.STORAGE, str(folder / LOG), "Not a directory"):
        RecipeLog(folder, manifest, PLENTY).follow(boundary("b", seen(start, 1)))


def test_its_digests_are_those_of_a_capsule(
    log: RecipeLog, make_capsule: Callable, buffers, manifest: Manifest, tmp_path: Path
) -> None:
    capsule = make_capsule()
    encode_capsule(capsule, buffers, 1).write_aside(path_of(tmp_path, capsule.name))
    log.follow(capsule.boundary)
    with open_checked(path_of(tmp_path, capsule.name), FORMAT) as file:
        assert tuple(input_digests(file)) == read_log(tmp_path, manifest).digests


def test_sigkill_loses_no_acknowledged_head(
    start: Recipe, manifest: Manifest, quick_path: Path, until_killed: Callable[..., str]
) -> None:
    def keep_following(tell: Callable[[str], None]) -> None:
        log, recipe = RecipeLog(quick_path, manifest, 60_000), start
        for stamp in itertools.count():
            recipe = seen(recipe if stamp % 20 else start, stamp)
            log.follow(boundary(f"b{stamp}", recipe))
            tell(str(stamp))

    chance, begun_anew = random.Random(0), 0
    for _ in range(50):
        acknowledged = int(until_killed(keep_following, chance))
        recorded = read_log(quick_path, manifest)
        assert recorded is not None
        assert int(recorded.boundary[1:]) in (acknowledged, acknowledged + 1)
        assert [event.stamp for event in recorded.events if isinstance(event, Observe)][-1] == int(
            recorded.boundary[1:]
        )
        begun_anew += (quick_path / ".recipe.aside").exists()
    print(f"50 kills, {begun_anew} while the log was begun anew")
