# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Tiny pi0 and pi0.5 checkpoints with seeded random weights, in the files of openpi and of LeRobot."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor

from flashrt_ros.models.pi0_config import VIEWS, read_pi0
from flashrt_ros.models.pi0_modules import Pi0Modules

Kind = Literal["pi0", "pi05"]
Layout = Literal["openpi", "lerobot"]

STATE = ("shoulder_pan", "shoulder_lift", "elbow", "wrist_pitch", "wrist_roll", "gripper")
ACTIONS = STATE
_VOCABULARY = 400
_TEXTS = (
    "press the red button",
    "pick up the green cube and put it into the bowl",
    "Task: no, the blue one, State: 12 255 -1 0 128 77;\nAction: ",
    *(f"State: {number}" for number in range(256)),
)
_VECTORS = {"mean": 0.1, "std": 0.5, "q01": -1.0, "q99": 1.5}


def write_tiny_pi0(folder: str | Path, kind: Kind, layout: Layout = "openpi", seed: int = 0, **extra: Any) -> Path:
    """Write a checkpoint folder of about 0.25 M random parameters, equal for equal arguments; returns the folder.

    `extra` are keys of its flashrt.json.
    """
    folder, config = Path(folder), _config(kind)
    named = {"state_names": list(STATE), "action_names": list(ACTIONS), "trained": False, **extra}
    tensors = random_tensors(config, kind, seed)
    if layout == "lerobot":
        tensors = {f"model.{name}": value for name, value in tensors.items()}
    write_without_weights(folder, config, named, layout)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def write_without_weights(folder: Path, config: dict[str, Any], named: dict[str, Any], layout: Layout) -> None:
    """Write config.json, from openpi's keys, flashrt.json (`named`), statistics for STATE, and a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    statistics = {part: {key: [value] * len(STATE) for key, value in _VECTORS.items()} for part in ("state", "actions")}
    if layout == "openpi":
        assets = folder / "assets" / "arm"
        assets.mkdir(parents=True, exist_ok=True)
        _write_json(assets / "norm_stats.json", {"norm_stats": statistics})
    else:
        config = _lerobot_config(config)
        _write_processors(folder, statistics)
    _write_json(folder / "config.json", config)
    _write_json(folder / "flashrt.json", named)
    write_tokenizer(folder / "paligemma_tokenizer.model")


def random_tensors(config: dict[str, Any], kind: Kind, seed: int) -> dict[str, Tensor]:
    """Every tensor of a policy, float32."""
    modules = Pi0Modules.build(read_pi0(config, {}, kind == "pi05"), torch.float32)
    generator = torch.Generator().manual_seed(seed)
    return {name: random_tensor(name, shape, generator) for name, shape in sorted(modules.tensors(()).items())}


def random_tensor(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Values that keep activations of order one, float32, on the generator's device."""
    noise = torch.randn(shape, generator=generator, device=generator.device)
    if len(shape) == 1:
        return 0.1 * noise + (name.endswith("weight") and "vision_tower" in name)
    return noise * noise[0].numel() ** -0.5


def write_tokenizer(path: Path) -> None:
    """A small sentencepiece model with PaliGemma's control tokens, which splits digits and falls back to bytes."""
    import sentencepiece  # only who makes such a checkpoint needs it

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(_TEXTS),
        model_writer=model,
        model_type="bpe",
        vocab_size=_VOCABULARY,
        byte_fallback=True,
        split_digits=True,
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        user_defined_symbols=["\n"],
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        minloglevel=2,
    )
    path.write_bytes(model.getvalue())


def _config(kind: Kind) -> dict[str, Any]:
    shared = {"depth": 3, "num_heads": 4, "num_kv_heads": 1, "head_dim": 16}
    return {
        "type": kind,
        "action_dim": 8,
        "action_horizon": 10,
        "max_token_len": 24 if kind == "pi0" else 100,
        "image_resolution": [28, 28],
        "vision": {"hidden_size": 48, "intermediate_size": 96, "num_layers": 2, "num_heads": 3, "patch_size": 14},
        "language": {**shared, "width": 64, "mlp_dim": 128, "vocab_size": _VOCABULARY},
        "action_expert": {**shared, "width": 32, "mlp_dim": 64},
    }


def _lerobot_config(config: dict[str, Any]) -> dict[str, Any]:
    names = {"max_token_len": "tokenizer_max_length", "action_horizon": "chunk_size", "action_dim": "max_action_dim"}
    mode = "MEAN_STD" if config["type"] == "pi0" else "QUANTILES"
    image = {"type": "VISUAL", "shape": [3, *config["image_resolution"]]}
    return {
        **{names.get(key, key): value for key, value in config.items()},
        "max_state_dim": config["action_dim"],
        "num_inference_steps": 10,
        "use_relative_actions": False,
        "normalization_mapping": {"VISUAL": "IDENTITY", "STATE": mode, "ACTION": mode},
        "input_features": {
            **{f"observation.images.{view}": image for view in (*VIEWS, "empty_camera_0")},
            "observation.state": {"type": "STATE", "shape": [len(STATE)]},
        },
        "output_features": {"action": {"type": "ACTION", "shape": [len(ACTIONS)]}},
    }


def _write_processors(folder: Path, statistics: dict[str, dict[str, list[float]]]) -> None:
    tensors = {
        f"{name}.{key}": torch.tensor(values)
        for part, name in (("state", "observation.state"), ("actions", "action"))
        for key, values in statistics[part].items()
    }
    for name, step in (("policy_preprocessor", "normalizer"), ("policy_postprocessor", "unnormalizer")):
        registered = f"{step}_processor"
        file = f"{name}_step_1_{registered}.safetensors"
        steps = [
            {"registry_name": "rename_observations_processor", "config": {"rename_map": {}}},
            {"registry_name": registered, "config": {"eps": 1e-8}, "state_file": file},
        ]
        _write_json(folder / f"{name}.json", {"name": name, "steps": steps})
        save_file(tensors, folder / file)


def _write_json(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
