# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from flashrt_ros.models.tiny_pi0 import write_tiny_pi0
from flashrt_ros.policy.opening import open_folder
from flashrt_ros.runtime.errors import ErrorCode


def test_a_folder_without_config_is_told_what_it_is(tmp_path: Path, refuses) -> None:
    trained = write_tiny_pi0(tmp_path / "run" / "checkpoints" / "000100" / "pretrained_model", "pi0", "lerobot")
    with refuses(ErrorCode.BAD_CHECKPOINT, f"config.json: not found; did you mean {trained}?"):
        open_folder(tmp_path / "run")
    (trained / "config.json").unlink()
    with refuses(ErrorCode.BAD_CHECKPOINT, "openpi's training writes none", '"action_horizon": N'):
        open_folder(trained)
    with refuses(ErrorCode.BAD_CHECKPOINT, f"did you mean {trained}?"):
        open_folder(trained.parent)
    for step in ("900", "1000"):
        write_tiny_pi0(tmp_path / "openpi" / step, "pi0")
        (tmp_path / "openpi" / step / "config.json").unlink()
    with refuses(ErrorCode.BAD_CHECKPOINT, f"did you mean {tmp_path / 'openpi' / '1000'}?"):
        open_folder(tmp_path / "openpi")
    (tmp_path / "params").mkdir()
    with refuses(ErrorCode.BAD_CHECKPOINT, "openpi's for JAX"):
        open_folder(tmp_path)
    with refuses(ErrorCode.BAD_CHECKPOINT, "a checkpoint folder holds it"):
        open_folder(tmp_path / "params")


def test_a_run_of_starvla_is_told_what_makes_a_checkpoint_of_it(tmp_path: Path, refuses) -> None:
    for name in ("config.yaml", "dataset_statistics.json"):
        (tmp_path / name).touch()
    with refuses(ErrorCode.BAD_CHECKPOINT, "a run of StarVLA: config.json is that of its Qwen3.5 with framework"):
        open_folder(tmp_path)


def test_a_folder_that_may_not_be_read_is_not_called_empty(tmp_path: Path, monkeypatch, refuses) -> None:
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    with refuses(ErrorCode.BAD_CHECKPOINT, f"checkpoint {tmp_path}: may not be read"):
        open_folder(tmp_path)


def test_an_adapter_is_refused_by_name(tmp_path: Path, refuses) -> None:
    folder = write_tiny_pi0(tmp_path, "pi0", "lerobot")
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    with refuses(ErrorCode.BAD_CHECKPOINT, "is a PEFT adapter (LoRA)", "merge_and_unload"):
        open_folder(folder)


def test_a_lerobot_folder_from_before_its_processors_is_refused_by_name(tmp_path: Path, refuses) -> None:
    folder = write_tiny_pi0(tmp_path, "pi0", "lerobot")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "resize_imgs_with_padding": [224, 224]}))
    with refuses(ErrorCode.BAD_CHECKPOINT, "was written by LeRobot before 0.4"):
        open_folder(folder)
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    tensors["normalize_inputs.buffer_observation_state.mean"] = torch.zeros(6)
    save_file(tensors, folder / "model.safetensors")
    with refuses(ErrorCode.BAD_CHECKPOINT, "was written by LeRobot before 0.4"):
        open_folder(folder)


def test_another_policy_is_refused_by_its_type(tmp_path: Path, refuses) -> None:
    (tmp_path / "config.json").write_text('{"type": "smolvla"}')
    save_file({"model.vlm_with_expert.lm_expert.norm.weight": torch.zeros(1)}, tmp_path / "model.safetensors")
    with refuses(ErrorCode.BAD_CHECKPOINT, "is no policy that is served (config.json has type 'smolvla')"):
        open_folder(tmp_path)
