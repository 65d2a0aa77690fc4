# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest

from flashrt_ros.demo.options import parser


def test_a_folder_without_a_policy_is_refused(tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--checkpoint", str(tmp_path)])
    assert f"{tmp_path} holds no config.json" in capsys.readouterr().err
    (tmp_path / "config.json").write_text("{}")
    assert parser().parse_args(["--checkpoint", str(tmp_path)]).checkpoint == tmp_path
