# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import mmap
from dataclasses import replace
from pathlib import Path

import pytest

from flashrt_ros.tools.bench.pi0 import main
from flashrt_ros.tools.bench.pi0_load import Loading, Watch, anonymous_bytes, tables

MEGABYTES = 64
LOADED = Loading("again", 7, int(7e9), 59.0, {}, 20, int(8.9e9), int(8e9), int(1e9), int(7.9e9), on_gpu=True)


def test_it_loads_a_tiny_policy_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = tmp_path / "figures.json"
    options = ["--kind", "pi05", "--size", "tiny", "--device", "cpu", "--load", "float32", "bfloat16"]
    main([*options, "--json", str(figures)])
    found = json.loads(figures.read_text())["loadings"]
    printed = capsys.readouterr().out
    assert [row["what"] for row in found] == [
        f"{precision} files, {run}" for precision in ("float32", "bfloat16") for run in ("first", "again")
    ]
    assert found[0]["file_bytes"] > 1.9 * found[2]["file_bytes"]
    for row in found:
        assert row["seconds"] == pytest.approx(sum(row["steps"].values()))
        assert 0 <= row["told"] - (len(row["steps"]) - 1) <= row["seconds"]  # one more for each second of a step
        assert 0 < row["host_before"] < row["host_peak"]
        assert all(step in printed for step in row["steps"])


def test_the_weights_that_are_asked_for_are_loaded(tmp_path: Path) -> None:
    sizes, figures = [], tmp_path / "figures.json"
    for weights in ("auto", "fp8"):
        main(["--size", "tiny", "--device", "cpu", "--load", "float32", "--weights", weights, "--json", str(figures)])
        sizes.append(json.loads(figures.read_text())["loadings"][0]["weight_bytes"])
    assert sizes[1] < sizes[0]


def test_a_file_that_is_mapped_is_no_memory_of_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(MEGABYTES << 20))
    before = anonymous_bytes()
    with (tmp_path / "file").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert not any(mapped[:: mmap.PAGESIZE])
        assert anonymous_bytes() - before < MEGABYTES << 19


def test_what_is_taken_and_given_back_is_seen() -> None:
    taken = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE  # the heap may have as much to spare
    with Watch() as watch, mmap.mmap(-1, MEGABYTES << 20, flags=taken):
        watch.sample()
    assert watch.host - watch.before > MEGABYTES << 19


@pytest.mark.parametrize(
    "over", [{"seconds": 61.0}, {"gpu_peak": int(9.1e9)}, {"host_peak": int(8.1e9)}, {"on_gpu": False, "seconds": 61}]
)
def test_what_is_over_its_bar_is_told(over: dict[str, float]) -> None:
    assert LOADED.holds
    loading = replace(LOADED, **over)
    assert not loading.holds
    cells = [str(cell) for column in tables([loading])[0].columns for cell in column.cells]
    assert sum("over the bar" in cell for cell in cells) == 1


def test_on_a_cpu_the_weights_are_host_memory() -> None:
    on_cpu = replace(LOADED, on_gpu=False, host_peak=int(14.9e9))
    assert on_cpu.holds
    assert not replace(on_cpu, host_peak=int(15.1e9)).holds
