# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from flashrt_ros.runtime.errors import DeviceRefusalError, ErrorCode, FlashrtError

nvrtc = pytest.importorskip("flashrt_ros.runtime.cuda.nvrtc", reason="needs requirements/cuda.txt")

SOURCE = '#include "part.cuh"\nextern "C" __global__ void set(float* x) { x[threadIdx.x] = VALUE; }\n'


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "part.cuh").write_text("#define VALUE 1.0f\n")
    path = tmp_path / "set.cu"
    path.write_text(SOURCE)
    return path


def test_architectures_have_the_names_of_their_compiler() -> None:
    assert [nvrtc.architecture(capability) for capability in ((8, 7), (9, 0), (11, 0))] == [
        "sm_87",
        "sm_90a",
        "sm_110a",
    ]


def test_whatever_decides_a_cubin_is_in_its_digest(source: Path) -> None:
    digests = {nvrtc.digest(source, "sm_80"), nvrtc.digest(source, "sm_90a")}
    source.with_name("part.cuh").write_text("#define VALUE 2.0f\n")
    digests.add(nvrtc.digest(source, "sm_80"))
    source.write_text(f"// options: --use_fast_math\n{SOURCE}")
    digests.add(nvrtc.digest(source, "sm_80"))
    assert len(digests) == 4


def test_a_kernel_is_compiled_once(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = nvrtc.CubinCache(tmp_path / "cache")
    first = cache.cubin(source, "sm_80")
    monkeypatch.setattr(nvrtc, "compile_file", None)
    assert first.startswith(b"\x7fELF")
    assert cache.cubin(source, "sm_80") == first
    assert len(list(cache.folder.iterdir())) == 1


@pytest.mark.parametrize(
    "damage", [lambda kept: b"", lambda kept: kept[:200], lambda kept: kept[:99] + b"?" + kept[100:]]
)
def test_a_damaged_file_is_compiled_anew(source: Path, tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    cache = nvrtc.CubinCache(tmp_path / "cache")
    first = cache.cubin(source, "sm_80")
    (file,) = cache.folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert cache.cubin(source, "sm_80") == first
    assert file.read_bytes() == whole


def test_a_full_disk_is_named_and_leaves_nothing(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = nvrtc.CubinCache(tmp_path / "cache")
    monkeypatch.setattr(os, "replace", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(FlashrtError, match=r"kept in .*cache: .*No space left.*XDG_CACHE_HOME") as refused:
        cache.cubin(source, "sm_80")
    assert refused.value.code is ErrorCode.STORAGE
    assert not list(cache.folder.iterdir())


def test_what_a_killed_process_left_goes_and_what_another_writes_stays(source: Path, tmp_path: Path) -> None:
    cache = nvrtc.CubinCache(tmp_path / "cache")
    cache.folder.mkdir()
    left, written = cache.folder / "tmp1", cache.folder / "tmp2"
    for path in (left, written):
        path.write_bytes(b"a part")
    os.utime(left, (0, 0))
    undeletable = cache.folder / "tmpfolder"
    undeletable.mkdir()
    os.utime(undeletable, (0, 0))
    cache.cubin(source, "sm_80")
    assert not left.exists()
    undeletable.rmdir()
    assert written.read_bytes() == b"a part"


def test_what_cannot_be_read_is_named(source: Path, tmp_path: Path) -> None:
    cache = nvrtc.CubinCache(tmp_path / "cache")
    cache.cubin(source, "sm_80")
    (file,) = cache.folder.iterdir()
    file.unlink()
    file.mkdir()
    with pytest.raises(FlashrtError, match=r"cubin'; set XDG_CACHE_HOME"):
        cache.cubin(source, "sm_80")


def test_a_folder_that_cannot_be_looked_into_is_named(source: Path, tmp_path: Path) -> None:
    cache = nvrtc.CubinCache(tmp_path / ("x" * 300))
    for keep in (lambda: cache.cubin(source, "sm_80"), lambda: cache.fill([source], "sm_80")):
        with pytest.raises(FlashrtError, match=r"kept in .*xxx: .*name too long.*; set XDG_CACHE_HOME") as refused:
            keep()
        assert refused.value.code is ErrorCode.STORAGE


@pytest.mark.parametrize(
    ("cache_home", "folder"),
    [(None, "/home/her/.cache"), ("", "/home/her/.cache"), ("cache", "/home/her/.cache"), ("/var/cache", "/var/cache")],
    ids=["not set", "empty", "not absolute", "absolute"],
)
def test_the_users_cache_folder_has_an_absolute_path(
    cache_home: str | None, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/her")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if cache_home is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", cache_home)
    assert nvrtc.CubinCache().folder == Path(folder, "flashrt_ros", "kernels")


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("Could not determine home directory.")))
    with pytest.raises(FlashrtError, match="HOME is not set: set XDG_CACHE_HOME") as refused:
        nvrtc.CubinCache()
    assert refused.value.code is ErrorCode.STORAGE
    assert nvrtc.CubinCache(tmp_path).folder == tmp_path


def test_compiling_leaves_the_bytes_of_others_alone(source: Path) -> None:
    source.write_text('extern "C" __global__ void nothing() {}\n')
    _, log = nvrtc.compile_file(source, "sm_80")
    assert (log, chr(32).encode()[0]) == ("", 32)


def test_what_does_not_compile_says_where(source: Path) -> None:
    source.write_text('#include "part.cuh"\nextern "C" __global__ void set(float* x) { x[0] = MISSING; }\n')
    with pytest.raises(
        FlashrtError, match=r'set\.cu does not compile for sm_80[^$]*set\.cu\(2\): error: [^$]*"MISSING"'
    ) as refused:
        nvrtc.compile_file(source, "sm_80")
    assert refused.value.code is ErrorCode.DEVICE


def test_files_are_compiled_side_by_side_and_one_that_does_not_is_left_to_who_needs_it(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong, other = source.with_name("wrong.cu"), source.with_name("other.cu")
    wrong.write_text("wrong")
    other.write_text(SOURCE)
    cache = nvrtc.CubinCache(tmp_path / "cache")
    kept = cache.cubin(other, "sm_80")
    both = threading.Barrier(2, timeout=20.0)
    compile_file = nvrtc.compile_file

    def compile_beside_another(path: Path, arch: str) -> tuple[bytes, str]:
        both.wait()
        return compile_file(path, arch)

    monkeypatch.setattr(nvrtc, "compile_file", compile_beside_another)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    told: list[float] = []
    cache.fill([source, wrong, other], "sm_80", told.append)
    monkeypatch.setattr(nvrtc, "compile_file", compile_file)

    assert told == [0.5, 1.0]
    assert len(list(cache.folder.iterdir())) == 2
    assert (cache.cubin(source, "sm_80"), cache.cubin(other, "sm_80")) == (compile_file(source, "sm_80")[0], kept)
    with pytest.raises(DeviceRefusalError, match=r"wrong\.cu does not compile"):
        cache.cubin(wrong, "sm_80")


def test_whoever_is_told_may_end_the_compiling(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [source.with_name(f"{number}.cu") for number in range(40)]
    for path in sources:
        path.write_text(SOURCE)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    cache = nvrtc.CubinCache(tmp_path / "cache")
    with pytest.raises(KeyboardInterrupt):
        cache.fill(sources, "sm_80", Mock(side_effect=KeyboardInterrupt))
    assert len(list(cache.folder.iterdir())) < len(sources)


def test_processes_that_start_at_once_share_a_cache(source: Path, tmp_path: Path, root: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from flashrt_ros.runtime.cuda.nvrtc import CubinCache\n"
        "cubin = CubinCache(Path(sys.argv[2])).cubin(Path(sys.argv[1]), 'sm_80'); assert cubin[:4] == b'\\x7fELF'"
    )
    command = [sys.executable, "-c", program, str(source), str(tmp_path / "cache")]
    running = [subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [(process.communicate()[1], process.returncode) for process in running] == [("", 0)] * 3
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".cubin"]
