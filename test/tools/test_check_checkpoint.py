# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import tokenizers
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
    for part in (
        "checkpoint pi05",
        "base_0_rgb",
        "quantile, as LeRobot computes it",
        "state elbow q01 -1 q99 1.5",
        "float32",
    ):
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


def test_a_prompt_that_ends_before_the_thoughts_of_qwen_is_mentioned(tmp_path: Path, capsys) -> None:
    folder = write_tiny_checkpoint(tmp_path, layout="starvla")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    code, said = check(folder, capsys, "--headers")
    assert (code, "does not end as" in said) == (0, False)
    values = json.loads((folder / "config.json").read_text())
    prompt = values["flashrt"]["prompt"]
    prompt["observe"] = prompt["observe"].replace("<think>\n\n</think>\n\n", "")
    (folder / "config.json").write_text(json.dumps(values))
    code, said = check(folder, capsys, "--headers")
    assert (code, "prompt.observe does not end as the chat template" in said) == (0, True)


DEEP = b'{"a":' * 5000


@pytest.mark.parametrize(
    ("file", "old", "new", "named"),
    [
        ("config.json", b"", DEEP, "config.json: cannot be read: maximum recursion"),
        (
            "config.json",
            b'"num_heads": 3',
            b'"num_heads": 5',
            "vision.num_heads: expected a divisor of the hidden_size",
        ),
        (
            "config.json",
            b'"observation.images.base_0_rgb": {',
            b'"x": null, "base": {',
            "input_features.x: expected an",
        ),
        ("policy_preprocessor.json", b"", DEEP, "policy_preprocessor.json: cannot be read: maximum recursion"),
        ("policy_postprocessor.json", b'{\n        "eps": 1e-08\n      }', b"null", "expected an object, found None"),
        ("paligemma_tokenizer.model", None, b"", "not a sentencepiece model: it is empty"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, capsys, file: str, old: bytes | None, new: bytes, named: str) -> None:
    path = write_tiny_pi0(tmp_path, "pi05", "lerobot") / file
    content = path.read_bytes()
    assert old is None or old in content
    path.write_bytes(new if old is None else content.replace(old, new, 1))
    code, said = check(tmp_path, capsys, "--headers")
    assert code in (1, 2)
    assert named in said


def test_a_number_of_statistics_fits_a_float(tmp_path: Path, capsys) -> None:
    path = write_tiny_checkpoint(tmp_path) / "norm_stats.json"
    content = json.loads(path.read_text())
    content["norm_stats"]["state"]["mean"][0] = 10**400
    path.write_text(json.dumps(content))
    assert "norm_stats.state.mean[0] is 1000" in check(tmp_path, capsys, "--headers")[1]


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
    assert "whether actions are relative to the state: they are taken as absolute (action_mode) in" in said
    assert "of a vocabulary" not in said
    (folder / "paligemma_tokenizer.model").unlink()
    tokenizers.Tokenizer(tokenizers.models.BPE(vocab={"<bos>": 0, "a": 1}, merges=[])).save(
        str(folder / "tokenizer.json")
    )
    assert "tokenizer.json gives tokens up to 1 of a vocabulary of 400" in check(folder, capsys, "--headers")[1]


def test_a_folder_that_is_none_is_not_checked(tmp_path: Path, capsys) -> None:
    assert check(tmp_path / "absent", capsys)[0] == 2
    (tmp_path / "config.json").write_text("{}")
    assert check(tmp_path, capsys)[0] == 2


@pytest.mark.parametrize("kind", ["pi0", "pi05"])
def test_it_says_what_fp8_weights_cost(kind: str, tmp_path: Path, capsys) -> None:
    folder = write_tiny_pi0(tmp_path, kind)
    code, said = check(folder, capsys, "--fp8")
    assert code == 0
    rows = {"q": 4 * 16, "k": 16, "v": 16, "o": 32, "gate": 64, "up": 64, "down": 32}
    for name, count in rows.items():
        found = re.search(rf"{name}_proj {3 * count} (0\.\d+) (0\.\d+) ", said)
        assert found is not None, name
        assert 0.02 < float(found[2]) < float(found[1]) < 0.04
    actions = re.search(r"largest error (\S+), mean (\S+), of normalised actions that are (\S+) in size", said)
    assert actions is not None
    largest, mean, size = map(float, actions.groups())
    assert 0 < mean < largest < 0.2 * size
    assert "FP8" not in check(folder, capsys)[1]


def test_fp8_is_not_tried_where_it_cannot_be(tmp_path: Path, capsys) -> None:
    code, said = check(write_tiny_checkpoint(tmp_path / "tiny"), capsys, "--fp8")
    assert (code, "FP8 weights are not tried: it is neither pi0 nor pi0.5" in said) == (0, True)
    folder = write_tiny_pi0(tmp_path / "pi0", "pi0")
    (folder / "paligemma_tokenizer.model").unlink()
    code, said = check(folder, capsys, "--fp8")
    assert (code, "FP8 weights are not tried: what is wrong comes first" in said) == (1, True)


def test_fp8_of_weights_that_make_no_actions_is_trouble(tmp_path: Path, capsys) -> None:
    folder = _with(tmp_path, torch.float32, 3e38)
    code, said = check(folder, capsys, "--fp8")
    assert (code, "bfloat16 weights: of random inputs, actions are not finite" in said) == (1, True)


def test_fp8_needs_the_values(tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([str(write_tiny_pi0(tmp_path, "pi0")), "--fp8", "--headers"])
    assert "leave --headers out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("dtype", "value", "finite"),
    [(torch.float64, 1e300, False), (torch.float64, 0.5, True), (torch.float8_e4m3fn, 0.5, True)],
)
def test_values_are_finite_as_they_are_loaded(tmp_path: Path, capsys, dtype: torch.dtype, value: float, finite: bool):
    code, said = check(_with(tmp_path, dtype, value), capsys)
    assert (code == 0, "hold values that are not finite" not in said) == (finite, finite)


def _with(folder: Path, dtype: torch.dtype, value: float) -> Path:
    """A checkpoint that holds a number in one of the matrices that FP8 is for."""
    folder = write_tiny_pi0(folder, "pi0")
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if "gemma_expert" in name and name.endswith("down_proj.weight"))
    wide = tensors[name].double()
    wide[0, 0] = value
    save_file(tensors | {name: wide.to(dtype)}, folder / "model.safetensors")
    return folder
