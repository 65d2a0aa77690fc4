# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.policy.folder_index import FolderIndex
from flashrt_ros.policy.loading import load_policy
from flashrt_ros.policy.session import Session
from flashrt_ros.policy.writer import CapsuleWriter
from flashrt_ros.tools import capsule
from flashrt_ros.tools.audit import random_observation

SECONDS = 30.0
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`start`, then `later` with one observation and a chunk more, and `left`, which branches off `start`."""
    folder = tmp_path_factory.mktemp("capsules")
    policy = load_policy(write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint")))
    session = Session(policy)
    writer = CapsuleWriter(folder, 1 << 30, policy.plan.buffers, policy.manifest(), session.store.is_pinned)
    random = np.random.default_rng(1)
    session.begin("press the button", 5)
    session.observe(random_observation(policy, random, 10**9))
    writer.write(session.snapshot("start", pinned=True).capsule)
    session.observe(random_observation(policy, random, 2 * 10**9))
    session.act()
    writer.write(session.snapshot("later").capsule)
    session.restore("start")
    session.retry(1)
    writer.write(session.fork("left", "try the left one").capsule)
    assert writer.close(SECONDS)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "capsules"))


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("ls", ...)` gives exit code, stdout and stderr; all in the folder."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = capsule.main([*arguments, "--folder", str(folder)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def from_json(run: Run, *arguments: str) -> tuple[int, Any]:
    code, out, _ = run(*arguments, "--json")
    return code, json.loads(out)


def damage(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))


def test_ls(run: Run, folder: Path) -> None:
    code, out, _ = run("ls")
    assert code == 0
    assert "try the left one" in out
    code, found = from_json(run, "ls")
    assert [each["name"] for each in found["capsules"]] == ["left", "later", "start"]
    assert [each["pinned"] for each in found["capsules"]] == [False, False, True]
    (folder / "empty.safetensors").touch()
    code, found = from_json(run, "ls")
    assert code == 1
    assert "0 bytes" in found["unreadable"]["empty"]
    assert "empty.safetensors: 0 bytes" in run("ls")[1]


def test_show(run: Run, folder: Path) -> None:
    code, out, _ = run("show", "later")
    assert code == 0
    assert "press the button" in out
    _, found = from_json(run, "show", str(folder / "later.safetensors"))
    assert (found["schema"], found["name"], found["instruction"], found["stamp"]) == (
        1,
        "later",
        "press the button",
        2 * 10**9,
    )
    assert len(found["measured"]) == 6
    assert [event["event"] for event in found["recipe"]] == ["begin", "observe", "observe", "act"]
    key = next(region for region in found["regions"] if region["name"] == "kv.3.key")
    assert key["shape"][0] == found["cursors"]["position"]
    assert len(key["sha256"]) == 64


def test_verify(run: Run, folder: Path) -> None:
    code, found = from_json(run, "verify")
    assert (code, len(found)) == (0, 3)
    assert "whole" in run("verify", "left")[1]
    damage(folder / "later.safetensors")
    code, found = from_json(run, "verify")
    assert code == 1
    assert [Path(each["path"]).stem for each in found if each["trouble"]] == ["later"]
    assert run("verify", "left")[0] == 0
    said = run("verify", "later")[1]
    assert "do not match their checksum" in said
    assert said.count("later.safetensors") == 1


def test_what_is_no_capsule_is_not_to_be_deleted(run: Run, folder: Path, tmp_path: Path) -> None:
    weights = write_tiny_checkpoint(tmp_path / "checkpoint") / "model.safetensors"
    for path, why in (
        (weights, "a safetensors file, and no flashrt_capsule: it was written as something else"),
        (weights.with_name("config.json"), "is no capsule: a capsule's file is named NAME.safetensors"),
    ):
        code, _, err = run("show", str(path))
        assert code == 2
        assert why in err
        assert "delete" not in err
    damage(folder / "later.safetensors")
    assert "delete it or copy it anew" in run("verify", "later")[1]


def test_diff_names_buffers_and_rows(run: Run) -> None:
    code, found = from_json(run, "diff", "start", "later")
    assert (code, found["same"]) == (1, False)
    assert found["inputs"] == [2, 4, 2]
    by_name = {buffer["name"]: buffer for buffer in found["buffers"]}
    for name in ("kv.3.key", "kv.3.value"):
        rows = by_name[name]["rows"]
        assert by_name[name]["first_row"] == rows[0] < rows[1]
        assert by_name[name]["differing_rows"] == 0
    assert by_name["generator"]["first_row"] == 1  # its counter
    assert by_name["history_count"]["largest"] == 1.0
    assert "instruction" not in by_name
    code, out, _ = run("diff", "start", "later")
    assert code == 1
    assert "equal up to row" in out

    code, found = from_json(run, "diff", "start", "left")
    assert code == 1
    assert [buffer["name"] for buffer in found["buffers"]] == ["generator"]
    assert found["buffers"][0]["what"] == "1 of 2 rows from row 0 on"  # its key


def test_diff_of_equal_ones(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = shutil.copy(folder / "start.safetensors", tmp_path / "other" / "start.safetensors")
    code, found = from_json(run, "diff", "start", str(other))
    assert (code, found["same"], found["buffers"]) == (0, True, [])
    assert "none differs" in run("diff", "start", str(other))[1]


def test_rm_spares_pinned_ones_and_folders_in_use(run: Run, folder: Path) -> None:
    assert run("rm", "left") == (0, "deleted left\n", "")
    code, _, err = run("rm", "start")
    assert code == 2
    assert "pinned" in err
    assert run("rm", "start", "--force")[0] == 0
    index = FolderIndex(folder, 0)
    code, _, err = run("rm", "later")
    index.close()
    assert code == 2
    assert "another process" in err
    assert [path.name for path in folder.glob("[!.]*")] == ["later.safetensors"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "absent"], "absent.safetensors: there is no such file"),
        (["show", ".."], "capsule name '..'"),
        (["verify", "absent"], "there is no such file"),
        (["diff", "start", "absent"], "there is no such file"),
        (["rm", "../start"], "capsule name '../start'"),
        (["rm", "absent"], "there is no such file"),
    ],
)
def test_what_cannot_be_done_says_why(run: Run, arguments: list[str], message: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["ls"], ["verify"], ["rm", "a"], ["show", "a"], ["diff", "a", "b"]):
        assert capsule.main([*command, "--folder", str(tmp_path / "absent")]) == 2
        assert "absent is no folder: name that of the capsules with --folder" in capsys.readouterr().err
    assert not (tmp_path / "absent").exists()


def test_a_folder_without_capsules_is_said_to_have_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("ls", "verify"):
        assert capsule.main([command, "--folder", str(tmp_path)]) == 0
        assert capsys.readouterr().out == f"{tmp_path}: there are no capsules\n"
    (tmp_path / "torn.safetensors").touch()
    assert capsule.main(["ls", "--folder", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "torn.safetensors" in said
    assert "instruction" not in said, "an empty table"


def test_help_names_both_that_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        capsule.main(["diff", "-h"])
    assert "[--json] A B" in " ".join(capsys.readouterr().out.split())


def test_it_starts_without_torch_and_ros(folder: Path) -> None:
    code = (
        "import sys\n"
        "for absent in ('torch', 'rclpy', 'flashrt_interfaces'): sys.modules[absent] = None\n"
        "from flashrt_ros.tools.capsule import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    for command in (["ls"], ["verify"], ["diff", "start", "start"], ["rm", "left"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *command, "--folder", str(folder)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
