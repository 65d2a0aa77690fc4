# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Reading checkpoint folders: names, shards, and files that do not fit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from flashrt_ros.models.checkpoint import Checkpoint, canonical
from flashrt_ros.models.hybrid import Hybrid
from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("model.language_model.layers.0.mlp.up_proj.weight", "language_model.layers.0.mlp.up_proj.weight"),
        ("language_model.norm.weight", "language_model.norm.weight"),
        ("model.layers.0.mlp.up_proj.weight", "language_model.layers.0.mlp.up_proj.weight"),
        ("embed_tokens.weight", "language_model.embed_tokens.weight"),
        ("model.visual.pos_embed.weight", "visual.pos_embed.weight"),
        ("lm_head.weight", "lm_head.weight"),
        ("mtp.norm.weight", "mtp.norm.weight"),
        ("qwen_vl_interface.model.model.visual.pos_embed.weight", "visual.pos_embed.weight"),
        ("qwen_vl_interface.model.lm_head.weight", "lm_head.weight"),
        ("action_model.model.proj_out_1.bias", "action_model.model.proj_out_1.bias"),
    ],
)
def test_names_of_every_class_become_one(key: str, name: str) -> None:
    assert canonical(key) == name


@pytest.fixture
def edited(tiny: Path, tmp_path: Path) -> Callable[[Callable[[dict[str, torch.Tensor]], None]], Path]:
    """A copy of the tiny policy whose tensors have been changed."""

    def edit(change: Callable[[dict[str, torch.Tensor]], None]) -> Path:
        shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
        tensors = load_file(tiny / "model.safetensors")
        change(tensors)
        save_file(tensors, tmp_path / "model.safetensors")
        return tmp_path

    return edit


def refusal(folder: Path) -> str:
    with pytest.raises(FlashrtError) as caught:
        Hybrid.from_folder(folder)
    assert caught.value.code == ErrorCode.BAD_CHECKPOINT
    return str(caught.value)


TEXT = "qwen_vl_interface.model.model.language_model."


def test_missing_extra_and_misshapen_tensors_are_named(edited) -> None:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        del tensors[f"{TEXT}norm.weight"]
        tensors["surplus"] = torch.zeros(1)
        tensors[f"{TEXT}embed_tokens.weight"] = torch.zeros(320, 255)

    message = refusal(edited(change))
    assert "1 missing: language_model.norm.weight" in message
    assert "1 extra: surplus" in message
    assert f"1 misshapen: {TEXT}embed_tokens.weight is [320, 255] where the config says [320, 256]" in message


def test_ten_names_are_listed_and_all_are_counted(edited) -> None:
    message = refusal(edited(lambda tensors: tensors.update({f"surplus{i:02}": torch.zeros(1) for i in range(13)})))
    assert "13 extra: surplus00, " in message
    assert "surplus09, and 3 more" in message
    assert "surplus10" not in message


def test_a_config_with_other_numbers_of_layers_says_both(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    values = json.loads((tmp_path / "config.json").read_text())
    values["text_config"]["num_hidden_layers"] = 5
    (tmp_path / "config.json").write_text(json.dumps(values))
    message = refusal(tmp_path)
    assert "num_hidden_layers is 5" in message
    assert "holds 4 language_model.layers" in message


def test_a_damaged_file_is_named(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    assert str(file) in refusal(tmp_path)


def test_a_pointer_of_git_lfs_is_told(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(FlashrtError, match=r"model\.safetensors: is the pointer of Git LFS"):
        Checkpoint(tmp_path)


def test_a_file_that_may_not_be_read_is_not_called_absent(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(FlashrtError, match=r"model\.safetensors: cannot be read: .*Is a directory"):
        Checkpoint(tmp_path)


def test_statistics_of_lerobot_are_no_shards(tmp_path: Path) -> None:
    for name in ("model-1", "policy_preprocessor_step_5_normalizer_processor"):
        save_file({f"{name}.weight": torch.zeros(1)}, tmp_path / f"{name}.safetensors")
    assert [file.name for file in Checkpoint(tmp_path).files] == ["model-1.safetensors"]


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_an_absent_file_is_named(name: str, tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    (tmp_path / name).unlink()
    assert name.removeprefix("model") in refusal(tmp_path)


def test_a_name_in_two_files_is_refused(tmp_path: Path) -> None:
    save_file({"model.norm.weight": torch.zeros(1)}, tmp_path / "a.safetensors")
    save_file({"language_model.norm.weight": torch.zeros(1)}, tmp_path / "b.safetensors")
    with pytest.raises(FlashrtError, match=r"is also model\.norm\.weight in a\.safetensors"):
        Checkpoint(tmp_path)


def test_shards_are_read_through_their_index(tiny: Path, tmp_path: Path, live) -> None:
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    tensors = load_file(tiny / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    places: dict[str, Any] = {}
    for shard in range(2):
        part = {key: tensors[key] for key in sorted(tensors)[shard::2]}
        save_file(part, tmp_path / f"model-{shard}.safetensors")
        places.update(dict.fromkeys(part, f"model-{shard}.safetensors"))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (tmp_path / "unrelated.safetensors").write_bytes(b"")
    whole, shards = live(tiny).buffers, live(tmp_path).buffers
    for spec in whole.of_kind("weight"):
        assert torch.equal(whole[spec.name], shards[spec.name])


def test_integer_weights_are_refused(edited) -> None:
    key = f"{TEXT}norm.weight"
    folder = edited(lambda tensors: tensors.update({key: torch.zeros(256, dtype=torch.int32)}))
    with pytest.raises(FlashrtError, match=r"norm.weight: expected floating-point values, found torch.int32"):
        Checkpoint(folder).read("language_model.norm.weight")


def test_a_tied_head_may_be_there_but_must_be_the_embedding(edited, live) -> None:
    head = "qwen_vl_interface.model.lm_head.weight"
    live(edited(lambda tensors: tensors.update({head: tensors[f"{TEXT}embed_tokens.weight"].clone()})))
    folder = edited(lambda tensors: tensors.update({head: tensors[f"{TEXT}embed_tokens.weight"] + 1}))
    with pytest.raises(FlashrtError, match=r"tie_word_embeddings is true, but lm_head\.weight differs"):
        live(folder)


def test_mtp_weights_are_kept(tmp_path: Path, live) -> None:
    folder = write_tiny_checkpoint(tmp_path, mtp=True)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    buffers, prefix = live(folder).buffers, "qwen_vl_interface.model.mtp."
    halves = torch.cat((buffers["mtp.fc_embedding"], buffers["mtp.fc_hidden"]), dim=1)
    assert torch.equal(halves, tensors[prefix + "fc.weight"])
    assert torch.equal(buffers["mtp.final_norm"], tensors[prefix + "norm.weight"] + 1)
    assert torch.equal(buffers["mtp.0.down"], tensors[prefix + "layers.0.mlp.down_proj.weight"])
    del tensors[prefix + "fc.weight"]
    save_file(tensors, file)
    assert "missing: mtp.fc.weight" in refusal(folder)
