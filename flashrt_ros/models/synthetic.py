# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Policies of published sizes with random weights, which no file holds: what benchmarks run."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.config import HybridConfig
from flashrt_ros.models.modules import Modules
from flashrt_ros.models.tiny import random_tensor, write_without_weights
from flashrt_ros.runtime.progress import Tell, tell_nobody

SIZES = ("tiny", "0.8B", "2B")


def write_synthetic(folder: Path, size: str) -> HybridConfig:
    """Write the folder of a policy of `size` (one of SIZES), all but its weights; returns its config."""
    return write_without_weights(folder, {"prompt": _PROMPT} if size == "tiny" else _overrides(size))


class RandomCheckpoint(Checkpoint):
    """The tensors that a config asks for, an MTP layer among them, drawn when they are read.

    Equal for equal seeds on one kind of device.
    """

    def __init__(self, config: HybridConfig, seed: int = 0, device: str = "cpu") -> None:
        """Large tensors are drawn on `device`; those that tables are computed from, on the CPU that computes them."""
        self.folder = Path("random")
        self.files = ()
        self._seed, self._device = seed, device
        modules = Modules.build(config, mtp=True)
        self._derived_from = {part.name for part in (*modules.vision.sources(), *modules.head.sources())}
        self.shapes = modules.tensors()

    def read(self, name: str) -> Tensor:
        """Draw the tensor, float32."""
        device = "cpu" if name in self._derived_from else self._device
        generator = torch.Generator(device).manual_seed(zlib.crc32(f"{self._seed} {name}".encode()))
        return random_tensor(name, self.shapes[name], generator)

    def digests(self, tell: Tell = tell_nobody) -> dict[str, str]:
        """What stands for the checksums of files."""
        return {"random": f"seed {self._seed} on {self._device}"}


def _overrides(size: str) -> dict[str, Any]:
    """The published shapes of Qwen3.5, its default visual tower, and StarVLA's DiT-L head."""
    width, inner = {"0.8B": (1024, 3584), "2B": (2048, 6144)}[size]
    text = {
        "vocab_size": 248320,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": 24,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000_000.0,
            "partial_rotary_factor": 0.25,
            "mrope_section": [11, 11, 10],
        },
    }
    vision = {
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_heads": 16,
        "out_hidden_size": width,
        "num_position_embeddings": 2304,
    }
    return {"name": size, "text_config": text, "vision_config": vision, "framework": _head(width), **_RUN}


def _head(cross_width: int) -> dict[str, Any]:
    dit = {
        "cross_attention_dim": cross_width,
        "interleave_self_attention": True,
        "norm_type": "ada_norm",
        "num_layers": 16,
        "output_dim": 1024,
        "positional_embeddings": None,
    }
    model = {
        "action_model_type": "DiT-L",
        "hidden_size": 1024,
        "add_pos_embed": True,
        "max_seq_len": 1024,
        "action_dim": 6,
        "state_dim": 6,
        "action_horizon": 16,
        "num_inference_timesteps": 4,
        "num_timestep_buckets": 1000,
        "num_target_vision_tokens": 32,
        "diffusion_model_cfg": dit,
    }
    return {"name": "QwenGR00T", "action_model": model}


_PROMPT = {"instruct": "{instruction}", "observe": "{images}"}
"""Without fixed text, so that an instruction takes as many rows as it has tokens."""

_RUN: dict[str, Any] = {
    "prompt": _PROMPT,
    "condition_rows": 2048,
    "max_rows": 18944,
    "stage_sizes": [2048, 128, 64, 8, 1],
    "max_instruction_tokens": 2048,
    "image_size": [224, 224],
}
"""An instruction of 2048 tokens is the longest segment; eight of them and some observations fill the context."""
