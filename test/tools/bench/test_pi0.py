# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flashrt_ros.runtime.errors import FlashrtError
from flashrt_ros.tools.bench.pi0 import main


@pytest.mark.parametrize("kind", ["pi0", "pi05"])
def test_it_measures_a_tiny_policy_on_a_cpu(kind: str, tmp_path: Path, capsys) -> None:
    figures = tmp_path / "figures.json"
    options = ["--kind", kind, "--size", "tiny", "--device", "cpu", "--views", "1", "2", "--repeats", "2"]
    assert main([*options, "--json", str(figures)]) == 0
    said = capsys.readouterr().out
    found = json.loads(figures.read_text())["figures"]
    assert {(row["views"], row["what"]) for row in found} == {
        (views, what)
        for views in (1, 2)
        for what in ("whole", "encode_images", "prefix_20", "denoising", "plain PyTorch")
    }
    assert all(0 < row["p50"] <= row["p99"] for row in found)
    assert all(row["what"] in said for row in found)
    assert " 1 view " in said
    assert " 2 views" in said


def test_kernels_are_a_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FlashrtError, match="--kernels needs a GPU; leave it out"):
        main(["--size", "tiny", "--device", "cpu", "--kernels"])
    with pytest.raises(SystemExit):
        main(["--size", "tiny", "--load", "float32", "--kernels"])
    assert "--load and --kernels: give one of them" in capsys.readouterr().err


def test_weights_of_one_byte_add_rows(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    options = ["--size", "tiny", "--device", "cpu", "--views", "1", "--repeats", "2", "--no-plain", "--weights", "fp8"]
    assert main([*options, "--json", str(figures)]) == 0
    found = [row["what"] for row in json.loads(figures.read_text())["figures"]]
    assert found[-3:] == ["denoising", "whole, fp8 weights", "denoising, fp8 weights"]


@pytest.mark.parametrize("option", ["--prompt", "--steps", "--threads", "--repeats"])
def test_a_number_below_one_is_refused(option: str, capsys) -> None:
    with pytest.raises(SystemExit):
        main([option, "0"])
    assert f"argument {option}: 0 is not 1 or more" in capsys.readouterr().err
