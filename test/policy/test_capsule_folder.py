# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

import functools
import os
import random
import resource
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from flashrt_ros.policy.capsule_file import encode_capsule
from flashrt_ros.policy.capsule_folder import CapsuleFolder
from flashrt_ros.policy.capsule_info import path_of
from flashrt_ros.policy.folder_index import look_at
from flashrt_ros.policy.recipe_log import RecipeLog
from flashrt_ros.policy.resume import ResumePoint, find_resume_point
from flashrt_ros.runtime.buffers import BufferSet
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import ErrorCode
from flashrt_ros.runtime.manifest import Manifest

PLENTY = 1 << 30


def unpinned(name: str) -> bool:
    return False


@contextmanager
def opened(path: Path, limit: int = PLENTY) -> Iterator[CapsuleFolder]:
    folder = CapsuleFolder(path, limit)
    try:
        yield folder
    finally:
        folder.close()


def capsule_files(path: Path) -> list[str]:
    return sorted(file.name.removesuffix(".safetensors") for file in path.glob("[!.]*"))


def newest(folder: CapsuleFolder, buffers: BufferSet, manifest: Manifest) -> ResumePoint:
    return find_resume_point(folder.index, buffers, manifest)


def test_what_the_index_knows_of_a_file_that_was_written_is_what_the_file_says(
    make_capsule, buffers: BufferSet, tmp_path: Path
) -> None:
    with opened(tmp_path) as folder:
        folder.write(make_capsule(name="c0"), buffers, unpinned)
        assert folder.index.get("c0") == look_at(path_of(tmp_path, "c0"))


def test_newest_is_the_last_written_even_when_the_clock_went_back(
    make_capsule, buffers: BufferSet, manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "made" / "here") as folder:
        for number, now in enumerate((5_000, 3_000)):
            monkeypatch.setattr(time, "time_ns", lambda now=now: now)
            folder.write(make_capsule(name=f"c{1 - number}", seed=number), buffers, unpinned)
    monkeypatch.setattr(time, "time_ns", lambda: 1)
    with opened(tmp_path / "made" / "here") as folder:
        assert newest(folder, buffers, manifest).capsule.name == "c0"
        folder.write(make_capsule(name="c2"), buffers, unpinned)
        assert newest(folder, buffers, manifest).capsule.name == "c2"


def test_newest_passes_over_what_does_not_fit_and_says_why(
    make_capsule, buffers: BufferSet, manifest: Manifest, tmp_path: Path
) -> None:
    with opened(tmp_path) as folder:
        for name in ("fits", "foreign", "torn", "damaged"):
            capsule = make_capsule(name=name)
            other = replace(capsule, manifest={**manifest, "weights": {}}) if name == "foreign" else capsule
            path = folder.write(other, buffers, unpinned)
        path.write_bytes(path.read_bytes()[:-1] + b"\xaa")  # its header stays whole
        torn = tmp_path / "torn.safetensors"
        torn.write_bytes(torn.read_bytes()[:99])
        (tmp_path / "notes.txt").write_text("not ours")
    with opened(tmp_path) as folder:
        found = newest(folder, buffers, manifest)
        assert (found.boundary, found.capsule.name, found.events) == ("b0", "fits", ())
        reasons = {(error.code, str(error).split(".safetensors")[0].split("/")[-1]) for error in found.skipped}
        assert reasons == {(ErrorCode.DAMAGED, "torn"), (ErrorCode.DAMAGED, "damaged")}
        folder.index.remove("fits")
        assert newest(folder, buffers, manifest).capsule is None
    assert capsule_files(tmp_path) == ["damaged", "foreign", "notes.txt", "torn"]


def test_size_limit_takes_the_least_recently_used(
    make_capsule, buffers: BufferSet, manifest: Manifest, tmp_path: Path, refuses
) -> None:
    size = encode_capsule(make_capsule(name="c0"), buffers, time.time_ns()).nbytes
    limit = 3 * size + 64

    def write(folder: CapsuleFolder, number: int) -> None:
        folder.write(make_capsule(name=f"c{number}"), buffers, {"c2"}.__contains__)

    with opened(tmp_path, limit) as folder:
        for number in (2, 0, 1, 3):
            write(folder, number)
        assert capsule_files(tmp_path) == ["c1", "c2", "c3"]
        assert "c0" not in folder.index
        write(folder, 1)  # in its own place
        assert capsule_files(tmp_path) == ["c1", "c2", "c3"]
        folder.read("c3", buffers, manifest)  # so that c1 is the older one
    with opened(tmp_path, limit) as folder:
        write(folder, 4)
        assert capsule_files(tmp_path) == ["c2", "c3", "c4"]
        with refuses(ErrorCode.OVER_BUDGET, str(tmp_path), "capsule c5", "pinned"):
            folder.write(make_capsule(name="c5"), buffers, lambda name: True)
        with refuses(ErrorCode.OVER_BUDGET):
            folder.write(make_capsule(name="c5", images=99), buffers, unpinned)
        assert capsule_files(tmp_path) == ["c2", "c3", "c4"]
    (tmp_path / "c2.safetensors").write_bytes(bytes(size))
    with opened(tmp_path, limit) as folder:
        write(folder, 5)
        assert capsule_files(tmp_path) == ["c2", "c4", "c5"]  # an unreadable one counts, but stays
        with refuses(ErrorCode.OVER_BUDGET, f"{size} are in unreadable files"):
            folder.write(make_capsule(name="c6"), buffers, lambda name: True)


def test_uses_keep_their_order_when_the_clock_goes_back(make_capsule, buffers: BufferSet, tmp_path: Path) -> None:
    size = encode_capsule(make_capsule(name="c0"), buffers, time.time_ns()).nbytes
    with opened(tmp_path) as folder:
        path = folder.write(make_capsule(name="c0"), buffers, unpinned)
    later = time.time_ns() + 10**18
    os.utime(path, ns=(later, later))
    for number in (1, 2):
        with opened(tmp_path, 2 * size + 64) as folder:
            folder.write(make_capsule(name=f"c{number}"), buffers, unpinned)
    assert capsule_files(tmp_path) == ["c1", "c2"]


def test_pins_survive_a_restart_and_go_with_their_capsule(
    make_capsule, buffers: BufferSet, tmp_path: Path, refuses
) -> None:
    size = encode_capsule(make_capsule(name="c0"), buffers, time.time_ns()).nbytes
    limit = 2 * size + 64
    with opened(tmp_path, limit) as folder:
        folder.write(make_capsule(name="c0"), buffers, {"c0"}.__contains__)
        folder.write(replace(make_capsule(name="c1"), automatic=True), buffers, {"c1"}.__contains__)
    (tmp_path / ".pins" / "never_came").touch()
    with opened(tmp_path, limit) as folder:
        assert [folder.index.is_pinned(name) for name in ("c0", "c1", "never_came")] == [True, False, False]
        for number in range(2, 5):
            folder.write(make_capsule(name=f"c{number}"), buffers, unpinned)
        assert capsule_files(tmp_path) == ["c0", "c4"]
        folder.write(make_capsule(name="c0"), buffers, unpinned)  # saved again
        assert folder.index.is_pinned("c0")
        folder.index.remove("c0")
    assert list((tmp_path / ".pins").iterdir()) == []
    with opened(tmp_path, limit) as folder:
        assert not folder.index.is_pinned("c0")


def test_a_file_that_somebody_brought_is_counted(
    make_capsule, buffers: BufferSet, manifest: Manifest, tmp_path: Path
) -> None:
    with opened(tmp_path / "there") as other:
        path = other.write(make_capsule(name="brought"), buffers, unpinned)
    with opened(tmp_path / "here") as folder:
        path.rename(tmp_path / "here" / path.name)
        assert folder.read("brought", buffers, manifest).boundary.id == "b0"
        assert folder.index.nbytes == (tmp_path / "here" / path.name).stat().st_size


def test_one_process_owns_a_folder(make_capsule, buffers: BufferSet, tmp_path: Path, refuses) -> None:
    with opened(tmp_path), refuses(ErrorCode.STORAGE, str(tmp_path), "another process"):
        CapsuleFolder(tmp_path, PLENTY)
    with opened(tmp_path):
        pass
    (tmp_path / "file").touch()
    with refuses(ErrorCode.STORAGE, str(tmp_path / "file")):
        CapsuleFolder(tmp_path / "file", PLENTY)


def test_the_folder_of_a_killed_process_is_free(tmp_path: Path, until_killed, refuses) -> None:
    def hold(tell: Callable[[str], None]) -> None:
        folder = CapsuleFolder(tmp_path, PLENTY)
        while True:
            tell(str(folder.index.nbytes))

    def second(words: int) -> None:
        with refuses(ErrorCode.STORAGE, "another process"):
            CapsuleFolder(tmp_path, PLENTY)

    until_killed(hold, random.Random(0), second)
    with opened(tmp_path):
        pass


def test_a_full_disk_loses_nothing(
    make_capsule, buffers: BufferSet, manifest: Manifest, tmp_path: Path, refuses
) -> None:
    size = encode_capsule(make_capsule(), buffers, time.time_ns()).nbytes
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(tmp_path, size + 8) as folder:
        folder.write(make_capsule(), buffers, unpinned)
        for bytes_left in (0, 1, size // 2, size - 1):
            resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_left, unlimited[1]))
            try:
                with refuses(ErrorCode.STORAGE, "File too large"):
                    folder.write(make_capsule(name="before_graspe", seed=1), buffers, unpinned)
                with refuses(ErrorCode.STORAGE, "File too large"):
                    folder.write(make_capsule(seed=1), buffers, unpinned)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
            assert sorted(file.name for file in tmp_path.iterdir()) == [".lock", "before_grasp.safetensors"]
            assert newest(folder, buffers, manifest).capsule.boundary.id == "b0"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB, where one may be mounted."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(path)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def test_a_full_file_system_loses_nothing(
    make_capsule, buffers: BufferSet, manifest: Manifest, small_disk: Path, refuses
) -> None:
    with opened(small_disk) as folder:
        folder.write(make_capsule(name="kept"), buffers, unpinned)
        big = make_capsule(name="kept", seed=1, images=160)
        for pages in range(12):
            (small_disk / "rest").write_bytes(bytes(4096 * pages))
            with refuses(ErrorCode.STORAGE, "No space left"):
                folder.write(big, buffers, {"kept"}.__contains__)
            log = RecipeLog(small_disk, manifest, PLENTY)
            with refuses(ErrorCode.STORAGE, "No space left"):
                log.follow(big.boundary)
            assert {path.name for path in small_disk.iterdir()} == {".lock", "kept.safetensors", "rest"}
            assert newest(folder, buffers, manifest).boundary == "b0"
    print("full at 12 points")


def test_a_save_waits_for_the_disk_in_the_right_order(
    make_capsule, buffers: BufferSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, rename = os.fsync, os.rename
    order: list[str] = []

    def synced(descriptor: int) -> None:
        order.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    with opened(tmp_path / "folder") as folder:
        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "rename", lambda *names: (order.append("rename"), rename(*names)))
        folder.write(make_capsule(), buffers, {"before_grasp"}.__contains__)
        assert order == [".aside", ".pins", "folder", "rename", "folder"]
        order.clear()
        folder.index.remove("before_grasp")
        assert order == ["folder", ".pins", "folder"]


def test_an_eviction_does_not_wait_for_the_disk(
    make_capsule, buffers: BufferSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = encode_capsule(make_capsule(name="newer"), buffers, time.time_ns()).nbytes + 8
    with opened(tmp_path, limit) as folder:
        folder.write(make_capsule(name="older"), buffers, unpinned)
        fsync, synced = os.fsync, Counter[str]()
        monkeypatch.setattr(os, "fsync", lambda descriptor: (synced.update(["fsync"]), fsync(descriptor)))
        folder.write(make_capsule(name="newer"), buffers, unpinned)
    assert capsule_files(tmp_path) == ["newer"]
    assert synced["fsync"] == 2, "the new file, and its name"


class Crash(BaseException):
    """Stands for the end of the process: nothing behind it runs."""


def test_a_crash_at_any_step_leaves_old_or_new(
    make_capsule, buffers: BufferSet, manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = make_capsule(seed=1, images=8)
    limit = encode_capsule(newer, buffers, time.time_ns()).nbytes + 8  # the other one must go for it
    found = []
    for crash_at in range(20):
        path = tmp_path / str(crash_at)
        with opened(path, limit) as folder:
            folder.write(make_capsule(name="other"), buffers, unpinned)
            folder.write(make_capsule(name="before_grasp"), buffers, unpinned)
            steps = iter(range(99))

            def step(real: Callable, *values: object, steps=steps, crash_at=crash_at, **named: object) -> object:
                if next(steps) == crash_at:
                    raise Crash
                return real(*values, **named)

            with monkeypatch.context() as patch:
                for name in ("open", "fsync", "rename", "unlink"):
                    patch.setattr(os, name, functools.partial(step, getattr(os, name)))
                try:
                    folder.write(newer, buffers, unpinned)
                    crashed = False
                except Crash:
                    crashed = True
        with opened(path, limit) as folder:
            left = newest(folder, buffers, manifest)
            assert not left.skipped
            found.append(left.capsule.boundary.id)
            assert not (path / ".aside").exists()
            folder.write(make_capsule(name="next"), buffers, unpinned)
        if not crashed:
            break
    assert crash_at >= 6
    assert found == sorted(found)
    assert (found[0], found[-1]) == ("b0", "b1")
    print(f"{crash_at} steps")


@pytest.mark.parametrize("capsules_kept", [99, 2])
def test_sigkill_loses_no_acknowledged_capsule(
    make_capsule, buffers: BufferSet, manifest: Manifest, quick_path: Path, until_killed, capsules_kept: int
) -> None:
    """With room for all the kill meets a save, with room for two also the removal of what must go for it."""
    path = quick_path
    capsules = [make_capsule(name=f"c{number}", seed=number, images=8) for number in range(6)]
    limit = capsules_kept * encode_capsule(capsules[0], buffers, time.time_ns()).nbytes + 64
    chance, points = random.Random(0), Counter[str]()
    for _ in range(50):
        acknowledged = until_killed(lambda tell: keep_writing(path, limit, capsules, buffers, tell), chance)
        written, limited = (path / ".aside").exists(), len(capsule_files(path)) > capsules_kept
        points["in a file" if written else "before a removal" if limited else "elsewhere"] += 1
        with opened(path, limit) as folder:
            assert not folder.index.unreadable
            assert "c0" in folder.index  # pinned
            kept = [each.info.boundary for each in folder.index.newest_first() if each.info.name != "c0"]
            later = f"b{max((int(acknowledged[1:]) + 1) % 6, 1)}"
            assert kept[0] in (acknowledged, later)
            for each in folder.index.newest_first():
                assert folder.read(each.info.name, buffers, manifest).boundary.id == f"b{each.info.name[1:]}"
        shutil.rmtree(path / ".pins")
    print(f"50 kills, {dict(points)}")


def keep_writing(
    path: Path, limit: int, capsules: list[Capsule], buffers: BufferSet, tell: Callable[[str], None]
) -> None:
    folder = CapsuleFolder(path, limit)
    folder.write(capsules[0], buffers, {"c0"}.__contains__)
    while True:
        for capsule in capsules[1:]:
            folder.write(capsule, buffers, unpinned)
            tell(capsule.boundary.id)
