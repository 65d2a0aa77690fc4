# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest

from flashrt_ros.policy.loading import load_policy
from flashrt_ros.tools.tiny_checkpoint import main


def test_what_it_writes_can_be_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "new" / "tiny"), "--seed", "3"]) == 0
    assert f"wrote an untrained policy to {tmp_path / 'new' / 'tiny'}" in capsys.readouterr().out
    load_policy(tmp_path / "new" / "tiny")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("file", "is no folder; name another"),
        ("/proc/x", "/proc cannot be written to (No such file or directory)"),
        ("weights", "Is a directory (os error 21); name another folder"),
    ],
)
def test_what_cannot_be_written_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, why: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "weights" / "model.safetensors").mkdir(parents=True)
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path / name)])
    said = capsys.readouterr().err
    assert f"{tmp_path / name}: " in said
    assert why in said
