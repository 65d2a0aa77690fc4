# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from flashrt_ros.demo.command import contents


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("demo.gif", "pictures"),
        ("demo_timeline.png", "pictures"),
        ("capsules/before_3f79.safetensors", "capsules"),
        ("capsules.incidents/incident_one/summary.md", "incidents"),
        ("logs/policy.log", "logs"),
    ],
)
def test_of_a_folder_is_told_what_is_in_it(tmp_path: Path, file: str, kind: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "capsules").mkdir(exist_ok=True)
    (tmp_path / "capsules" / ".lock").touch()
    assert contents(tmp_path) == contents(tmp_path / "missing") == []
    (tmp_path / file).touch()
    assert contents(tmp_path) == [kind]
