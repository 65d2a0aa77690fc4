# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flashrt_ros.demo.claimed_folder import FolderInUseError, claimed


def test_a_folder_is_one_runs_at_a_time_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    with claimed(folder), pytest.raises(FolderInUseError, match=f"{folder}: another run has its files there"):
        claimed(folder).__enter__()
    with claimed(folder):
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "module", "option"),
    [("./run demo", "flashrt_ros.demo", "--output"), ("./run soak", "flashrt_ros.tools.soak", "--folder")],
)
def test_a_second_run_is_refused_and_leaves_the_files_of_the_first_alone(
    root: Path, tmp_path: Path, command: str, module: str, option: str
) -> None:
    log = tmp_path / "logs" / "policy.log"
    log.parent.mkdir()
    log.write_text("of the first")
    with claimed(tmp_path):
        second = [sys.executable, "-m", module, option, str(tmp_path)]
        done = subprocess.run(second, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{command}: error: {tmp_path}: another run has its files there")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [log]
    assert log.read_text() == "of the first"
