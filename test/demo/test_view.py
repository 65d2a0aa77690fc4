# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from waiting import wait

from flashrt_ros.demo.view import main, no_screen, open_window


def test_where_there_is_no_screen_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("DISPLAY", "")
    monkeypatch.setenv("WAYLAND_DISPLAY", "")
    assert "DISPLAY and WAYLAND_DISPLAY are empty" in no_screen()
    assert main() == 1
    assert "no screen" in capsys.readouterr().err
    monkeypatch.setenv("DISPLAY", ":0")
    assert no_screen() == ""


def test_a_window_that_is_gone_disturbs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", "")
    monkeypatch.setenv("WAYLAND_DISPLAY", "")
    with open_window(tmp_path / "logs"):
        wait(lambda: "no screen" in (tmp_path / "logs" / "view.log").read_text())
