# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a command cannot work with, a file that cannot be written or a count of none, is refused before it begins."""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path

import pytest

from flashrt_ros.tools.arguments import (
    above_zero,
    folder_to_make,
    not_negative,
    output_file,
    positive,
    ros_seed,
)

COMMANDS = [
    ("tools.replay", "--json"),
    ("tools.replay", "--junit"),
    ("tools.replay", "--html"),
    ("tools.bench.capsule", "--json"),
    ("tools.bench.files", "--json"),
    ("tools.bench.pi0", "--json"),
    ("tools.bench.stages", "--json"),
]
COMMANDS_OF_ROS = [
    ("demo.evaluate", "--json"),
    ("tools.bench.demo", "--json"),
    ("tools.bench.demo", "--picture"),
    ("tools.bench.ros", "--json"),
    ("tools.soak.__main__", "--json"),
]


def test_a_new_file_and_one_to_be_replaced_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    assert output_file(str(file)) == file
    file.touch()
    assert output_file(str(file)) == file
    assert output_file("file.json") == Path("file.json")


@pytest.mark.parametrize(
    ("name", "named"),
    [(".", "is a folder"), ("no/file.json", "there is no folder"), ("file/file.json", "there is no folder")],
)
def test_what_cannot_be_written_is_refused_with_its_reason(tmp_path: Path, name: str, named: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(argparse.ArgumentTypeError, match=named):
        output_file(str(tmp_path / name))


@pytest.mark.parametrize(("name", "locked"), [("new.json", "."), ("file.json", "file.json")])
def test_what_may_not_be_written_is_refused(
    tmp_path: Path, name: str, locked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file.json").touch()
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path / locked and allowed(path, mode))
    with pytest.raises(argparse.ArgumentTypeError, match=f"{name} cannot be written"):
        output_file(str(tmp_path / name))


def test_a_folder_to_make_may_be_new_and_is_not_made_yet(tmp_path: Path) -> None:
    for name in (tmp_path, tmp_path / "new", tmp_path / "new" / "newer"):
        assert folder_to_make(str(name)) == name
    assert folder_to_make("new") == Path("new")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["file", "file/new", "dangling", "dangling/new"])
def test_a_folder_is_not_to_be_made_where_something_else_is(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(argparse.ArgumentTypeError, match=f"{name}: {tmp_path}/{name.split('/')[0]} is no folder"):
        folder_to_make(str(tmp_path / name))


@pytest.mark.parametrize("name", ["/proc", "/proc/new"])
def test_a_folder_is_not_to_be_made_where_nobody_can(name: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"{name}: /proc cannot be written to"):
        folder_to_make(name)


def test_counts_and_seeds_have_their_bounds() -> None:
    assert (positive("1"), ros_seed("0"), ros_seed(str(2**63 - 1))) == (1, 0, 2**63 - 1)
    with pytest.raises(argparse.ArgumentTypeError, match="0 is not 1 or more"):
        positive("0")
    for text in ("-1", str(2**63)):
        with pytest.raises(argparse.ArgumentTypeError, match=f"{text} is not from 0 to"):
            ros_seed(text)


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "soon"])
def test_numbers_are_finite_and_within_their_bounds(text: str) -> None:
    assert (above_zero("0.5"), not_negative("0"), not_negative("2.5")) == (0.5, 0.0, 2.5)
    for read in (positive, ros_seed, above_zero, not_negative):
        with pytest.raises(argparse.ArgumentTypeError, match=f"{text} is not "):
            read(text)
    with pytest.raises(argparse.ArgumentTypeError, match="0 is not a finite number above 0"):
        above_zero("0")


def refusal(module: str, option: str, file: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command says of a file; an option that it refuses in any case keeps it from beginning."""
    main = importlib.import_module(f"flashrt_ros.{module}").main
    with pytest.raises(SystemExit):
        main([option, file, "--no-such-option"])
    return capsys.readouterr().err


@pytest.mark.parametrize(("module", "option"), COMMANDS)
def test_a_command_refuses_it_while_it_reads_its_options(
    tmp_path: Path, module: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing"
    assert f"argument {option}: {missing}/file: there is no folder" in refusal(
        module, option, f"{missing}/file", capsys
    )


@pytest.mark.parametrize(
    ("module", "option", "text", "said"),
    [
        ("tools.bench.files", "--folder", __file__, f"{__file__}: {__file__} is no folder"),
        ("tools.bench.files", "--megabytes", "0", "0 is not 1 or more"),
        ("tools.bench.capsule", "--repeats", "0", "0 is not 1 or more"),
        ("tools.bench.stages", "--tokens", "-1", "-1 is not 1 or more"),
        ("tools.replay", "--workers", "0", "0 is not 1 or more"),
        ("demo.train", "--folder", "/proc/new", "/proc/new: /proc cannot be written to"),
    ],
)
def test_a_command_refuses_what_it_cannot_measure(
    module: str, option: str, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"argument {option}: {said}" in refusal(module, option, text, capsys)


@pytest.mark.parametrize(
    ("module", "option", "text", "said"),
    [
        ("tools.bench.ros", "--seconds", "nan", "nan is not a finite number above 0"),
        ("tools.bench.ros", "--recorder", "-1", "-1 is not a finite number of 0 or more"),
        ("tools.soak.__main__", "--minutes", "nan", "nan is not a finite number above 0"),
        ("tools.soak.__main__", "--slack", "-1", "-1 is not a finite number of 0 or more"),
        ("tools.soak.__main__", "--folder", __file__, f"{__file__}: {__file__} is no folder"),
    ],
)
def test_a_command_of_ros_refuses_what_it_cannot_work_with(
    module: str, option: str, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rclpy")
    test_a_command_refuses_what_it_cannot_measure(module, option, text, said, capsys)


@pytest.mark.parametrize(("module", "option"), COMMANDS_OF_ROS)
def test_a_command_that_needs_ros_does_too(
    tmp_path: Path, module: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rclpy")
    test_a_command_refuses_it_while_it_reads_its_options(tmp_path, module, option, capsys)


def test_a_picture_of_a_kind_that_is_not_drawn_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rclpy")
    told = refusal("tools.bench.demo", "--picture", str(tmp_path / "best.txt"), capsys)
    assert "best.txt: name a file that ends in .png" in told
