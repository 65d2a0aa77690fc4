# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.models.tiny_pi0 import write_tiny_pi0
from flashrt_ros.tools.check_checkpoint import main


def check(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main([str(folder), *arguments])
    return code, " ".join(capsys.readouterr().out.split())


def test_it_says_what_a_good_one_is(tmp_path: Path, capsys) -> None:
    code, said = check(write_tiny_pi0(tmp_path / "pi05", "pi05", "lerobot"), capsys)
    assert code == 0
    for part in ("checkpoint pi05", "base_0_rgb", "quantile, as LeRobot computes it", "state elbow -1 1.5", "float32"):
        assert part in said
    code, said = check(write_tiny_checkpoint(tmp_path / "tiny"), capsys)
    assert (code, "checkpoint tiny" in said) == (0, True)


def test_trouble_in_one_part_hides_none_in_another(tmp_path: Path, capsys) -> None:
    folder = write_tiny_pi0(tmp_path, "pi0")
    tensors = load_file(folder / "model.safetensors")
    tensors["action_out_proj.bias"][0] = torch.nan
    del tensors["state_proj.bias"]
    save_file(tensors, folder / "model.safetensors")
    (folder / "paligemma_tokenizer.model").unlink()
    statistics = json.loads((folder / "assets" / "arm" / "norm_stats.json").read_text())
    statistics["norm_stats"]["state"]["std"][2] = -1.0
    (folder / "assets" / "arm" / "norm_stats.json").write_text(json.dumps(statistics))
    code, said = check(folder, capsys)
    assert code == 1
    for part in (
        "1 missing: state_proj.bias",
        "holds no tokenizer",
        "norm_stats.state[2]: std -1.0 is negative",
        "1 tensors hold values that are not finite: action_out_proj.bias",
    ):
        assert part in said
    assert "not finite" not in check(folder, capsys, "--headers")[1]


def test_what_is_worth_knowing_is_noted(tmp_path: Path, capsys) -> None:
    folder = write_tiny_pi0(tmp_path, "pi0")
    (folder / "flashrt.json").unlink()
    path = folder / "assets" / "arm" / "norm_stats.json"
    statistics = json.loads(path.read_text())
    statistics["norm_stats"]["actions"]["std"][5] = 0.0
    path.write_text(json.dumps(statistics))
    code, said = check(folder, capsys)
    assert code == 0
    assert "no file names the joints" in said
    assert "action_5 never moved in the data" in said


def test_a_folder_that_is_none_is_not_checked(tmp_path: Path, capsys) -> None:
    assert check(tmp_path / "absent", capsys)[0] == 2
    (tmp_path / "config.json").write_text("{}")
    assert check(tmp_path, capsys)[0] == 2
