# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A tiny policy with seeded random weights: the embedded default, and what tests and demos run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import decoders, models, pre_tokenizers
from torch import Tensor

from flashrt_ros.models.config import HybridConfig, read_config
from flashrt_ros.models.modules import Modules
from flashrt_ros.models.starvla_config import THOUGHTLESS

JOINTS = ("shoulder_pan", "shoulder_lift", "elbow", "wrist_pitch", "wrist_roll", "gripper")
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>")
_VOCABULARY = 320
_ACTION_STD = 0.02
"""Radians: chunks of a policy that was never trained stay gentle."""

_LAYOUTS: dict[str, dict[str, Any]] = {
    "append": {"prompt": {"instruct": "<|im_start|>user\n{instruction}<|im_end|>\n", "observe": "{images}"}},
    "starvla": {
        "prompt": {"observe": f"<|im_start|>user\n{{images}}{{instruction}}<|im_end|>\n{THOUGHTLESS}"},
        "min_pixels": 1,
        "include_state": True,
    },
}


def write_tiny_checkpoint(folder: str | Path, seed: int = 0, mtp: bool = False, **overrides: Any) -> Path:
    """Write a checkpoint folder of about 7 M random parameters, equal for equal arguments; returns the folder.

    `mtp` adds an MTP layer. `overrides` replace keys of the config's `flashrt` section (`layout="starvla"` brings its
    own along), or, given as a dictionary for `text_config`, `vision_config` or `framework`, keys of that section.
    """
    folder = Path(folder)
    config = write_without_weights(folder, overrides)
    save_file(random_tensors(config, seed, mtp), folder / "model.safetensors", {"format": "pt"})
    return folder


def write_without_weights(folder: Path, overrides: dict[str, Any]) -> HybridConfig:
    """Write config.json, tokenizer.json and norm_stats.json; `overrides` as above."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    values = tiny_config(tokenizer.get_vocab(), overrides)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(folder / "config.json", values)
    _write_json(folder / "norm_stats.json", {"norm_stats": _statistics(len(JOINTS))})
    return read_config(values)


def random_tensors(config: HybridConfig, seed: int, mtp: bool = False) -> dict[str, Tensor]:
    """Every tensor of a policy, float32, under the names that StarVLA's checkpoints have; `mtp`: with such a layer."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, shape in sorted(Modules.build(config, mtp=mtp).tensors().items()):
        prefix = "" if name.startswith("action_model.") else "qwen_vl_interface.model."
        inner = "model." if name.startswith(("language_model.", "visual.")) else ""
        found[prefix + inner + name] = random_tensor(name, shape, generator)
    return found


def random_tensor(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Values that keep activations of order one, and recurrent states that remember some hundred rows.

    float32, on the generator's device.
    """
    noise = torch.randn(shape, generator=generator, device=generator.device)
    if name.endswith("A_log"):
        return noise.uniform_(0.02, 0.5, generator=generator).log()
    if name.endswith("dt_bias"):
        return noise * 0.5 - 3
    if len(shape) == 1:
        if name.endswith(".bias"):
            return noise * 0.0
        one_centred = "norm" in name and (name.startswith("visual.") or name.endswith("linear_attn.norm.weight"))
        return noise * 0.1 + float(one_centred)
    if name.endswith(("future_tokens.weight", "position_embedding.weight", "pos_embed.weight")):
        return noise * 0.5
    return noise * noise[0].numel() ** -0.5


def tiny_config(tokens: dict[str, int], overrides: dict[str, Any]) -> dict[str, Any]:
    """The config.json of the tiny policy."""
    own = dict(overrides)
    sections = {"text_config": _TEXT, "vision_config": _VISION, "framework": _FRAMEWORK}
    values: dict[str, Any] = {
        "model_type": "qwen3_5",
        "tie_word_embeddings": True,
        "vision_start_token_id": tokens["<|vision_start|>"],
        "image_token_id": tokens["<|image_pad|>"],
        "vision_end_token_id": tokens["<|vision_end|>"],
        **{key: {**section, **own.pop(key, {})} for key, section in sections.items()},
    }
    layout = own.get("layout", "append")
    values["flashrt"] = {**_FLASHRT, **_LAYOUTS.get(layout, {}), **own}
    return values


_TEXT: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "vocab_size": _VOCABULARY,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10_000_000.0,
        "partial_rotary_factor": 0.25,
        "mrope_section": [3, 3, 2],
    },
}

_VISION: dict[str, Any] = {
    "model_type": "qwen3_5_vision",
    "depth": 2,
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_heads": 4,
    "in_channels": 3,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "out_hidden_size": 256,
    "num_position_embeddings": 64,
}

_FRAMEWORK: dict[str, Any] = {
    "name": "QwenGR00T",
    "action_model": {
        "action_model_type": "DiT-B",
        "hidden_size": 128,
        "add_pos_embed": True,
        "max_seq_len": 64,
        "action_dim": len(JOINTS),
        "state_dim": len(JOINTS),
        "action_horizon": 16,
        "num_inference_timesteps": 4,
        "num_timestep_buckets": 1000,
        "num_target_vision_tokens": 8,
        "diffusion_model_cfg": {
            "cross_attention_dim": 256,
            "interleave_self_attention": True,
            "norm_type": "ada_norm",
            "num_layers": 4,
            "output_dim": 128,
            "positional_embeddings": None,
            "input_embedding_dim": 192,
            "attention_head_dim": 48,
            "num_attention_heads": 4,
        },
    },
}

_FLASHRT: dict[str, Any] = {
    "name": "tiny",
    "trained": False,
    "layout": "append",
    "condition": "newest",
    "condition_rows": 192,
    "max_rows": 4608,
    "stage_sizes": [24, 8, 1],
    "history": 2,
    "max_instruction_tokens": 128,
    "views": ["front", "wrist"],
    "image_size": [96, 96],
    "state_names": list(JOINTS),
    "action_names": list(JOINTS),
    "action_mode": "delta",
    "normalisation": "mean_std",
    "instruction_template": "{instruction}",
}


def _tokenizer() -> tokenizers.Tokenizer:
    """One token a byte, and the special tokens of the prompts."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(_SPECIAL))
    return tokenizer


def _statistics(joints: int) -> dict[str, dict[str, list[float]]]:
    def spread(std: float) -> dict[str, list[float]]:
        return {"mean": [0.0] * joints, "std": [std] * joints, "q01": [-2 * std] * joints, "q99": [2 * std] * joints}

    return {"state": spread(0.6), "actions": spread(_ACTION_STD)}


def _write_json(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
