# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from flashrt_ros.demo.options import parser, read
from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.models.tiny_pi0 import write_tiny_pi0


def refusal(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        parser().parse_args(["--checkpoint", str(folder)])
    return capsys.readouterr().err


def test_a_policy_of_the_demos_arm_is_taken(tmp_path: Path) -> None:
    folder = write_tiny_checkpoint(tmp_path)
    assert parser().parse_args(["--checkpoint", str(folder)]).checkpoint == folder


def test_a_folder_without_a_policy_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"BAD_CHECKPOINT: {tmp_path}" in refusal(tmp_path, capsys)
    assert f"{tmp_path / 'no'}: no such folder" in refusal(tmp_path / "no", capsys)


def test_a_policy_of_another_robot_is_refused_with_what_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["shoulder", "gripper"]
    folder = write_tiny_pi0(tmp_path / "pi0", "pi0", state_names=names)
    told = refusal(folder, capsys)
    assert "observation.state is shoulder_pan" in told
    assert "has shoulder, gripper: it lacks shoulder" in told
    assert "name a policy of the demo's arm" in told


@pytest.mark.parametrize("command", ["demo.evaluate", "tools.bench.demo"])
def test_what_plays_the_demos_task_refuses_it_too(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option that is refused in any case keeps the command from beginning."""
    main = importlib.import_module(f"flashrt_ros.{command}").main
    with pytest.raises(SystemExit):
        main(["--checkpoint", str(write_tiny_pi0(tmp_path, "pi0")), "--no-such-option"])
    assert "argument --checkpoint: BAD_CONTRACT" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--json", str(tmp_path / "no" / "result.json")])
    assert f"there is no folder {tmp_path / 'no'}" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit):
        parser().parse_args(["--output", str(tmp_path / "file")])
    assert f"argument --output: {tmp_path}/file: {tmp_path}/file is no folder" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--steps", "3"], ["--steps", "40"], ["--untrained"], ["--record"]])
def test_what_episodes_make_no_use_of_is_refused_beside_them(
    option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        read(["--episodes", "1", *option])
    assert f"argument {option[0]}: is of no use with --episodes" in capsys.readouterr().err
    assert read(option).episodes is None


def test_the_steps_of_the_help_are_those_that_are_made() -> None:
    told = parser().format_help().partition("actions in each run")[2].partition("--episodes")[0]
    assert f"(default: {read([]).steps})" in " ".join(told.split())
    assert read(["--steps", "3"]).steps == 3


@pytest.mark.parametrize(
    ("text", "wanted"), [("x", "a number"), ("nan", "a finite number of 0 or more"), ("101", "a number from 0 to 100")]
)
def test_of_a_bad_pace_is_said_what_is_wanted(text: str, wanted: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (read(["--pace", "0"]).pace, read(["--pace", "100"]).pace) == (0.0, 100.0)
    with pytest.raises(SystemExit):
        read(["--pace", text])
    assert f"argument --pace: {text} is not {wanted}\n" in capsys.readouterr().err
