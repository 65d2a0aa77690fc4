# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

import json
from pathlib import Path

import pytest

from flashrt_ros.tools.bench import files
from flashrt_ros.tools.bench.files import Figure, measure


def test_a_figure_holds_from_its_bar_on() -> None:
    figure = Figure("save", "write", 100, seconds=2.0, limit_seconds=1.4, bar=0.7)
    assert figure.part == pytest.approx(0.7)
    assert Figure("save", "write", 100, 2.0, 1.41, 0.7).holds
    assert not Figure("save", "write", 100, 2.0, 1.39, 0.7).holds


def test_too_small_a_capsule_is_refused_with_the_smallest_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for megabytes in (1, 4):
        with pytest.raises(SystemExit):
            files.main(["--megabytes", str(megabytes)])
        assert f"{megabytes} is too few for one row of context; give 5 or more" in capsys.readouterr().err
    measure(tmp_path, 5 * 10**6, 1, lambda what: None)


def test_it_measures_all_three_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []
    figures = measure(tmp_path, 8 << 20, 2, told.append)
    assert [figure.bar for figure in figures] == [0.7, 0.7, 0.8]
    assert all(figure.seconds > 0 and figure.limit_seconds > 0 for figure in figures)
    assert all(0.9 * (8 << 20) < figure.nbytes <= 8 << 20 for figure in figures)
    assert told
    output, folder = tmp_path / "figures.json", tmp_path / "disk"
    folder.mkdir()
    options = ["--megabytes", "8", "--repeats", "1", "--folder", str(folder), "--json", str(output)]
    code = files.main(options)
    said = json.loads(output.read_text())["figures"]
    assert code == (0 if all(figure["holds"] for figure in said) else 1)
    assert list(folder.iterdir()) == []
    assert "MB/s" in capsys.readouterr().out
