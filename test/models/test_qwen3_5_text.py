# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The language model alone, read from files that transformers wrote."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flashrt_ros.models.backbone_config import read_text
from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.config import read_json
from flashrt_ros.models.ops import Ops
from flashrt_ros.models.qwen3_5_text import POSITION, TextModel
from flashrt_ros.models.section import Section
from flashrt_ros.models.weights import load
from flashrt_ros.runtime.backend import CpuBackend, Stage
from flashrt_ros.runtime.buffers import Buffer, BufferSet
from flashrt_ros.runtime.plan import FAULT, Plan, Step, split

VOCABULARY, MAX_ROWS = 211, 160
TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 8,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e5,
        "partial_rotary_factor": 0.5,
        "mrope_section": [4, 2, 2],
    },
}


class TextOnly:
    """Tokens in, logits out."""

    faults = ()

    def __init__(self, folder: Path, stage_sizes: tuple[int, ...]) -> None:
        values = read_json(folder / "config.json")
        self.text = TextModel(
            read_text(Section(values, "config"), values["tie_word_embeddings"]), torch.float32, MAX_ROWS
        )
        self.checkpoint = Checkpoint(folder)
        self.stage_sizes = stage_sizes

    def buffers(self) -> list[Buffer]:
        largest = max(self.stage_sizes)
        return [
            *(item.buffer for item in self.text.weights()),
            *self.text.buffers(),
            *(Buffer(name, (1,), torch.int64, "input") for name in ("length", "rope_length")),
            Buffer("tokens", (largest,), torch.int64, "input"),
            Buffer("rope_offsets", (3, largest), torch.int64, "input"),
            Buffer("logits", (largest, VOCABULARY), torch.float32, "output"),
            Buffer(FAULT, (1,), torch.int32, "output", memory="host"),
        ]

    def stages(self) -> list[Stage]:
        return [Stage(f"append_{n}", partial(self._append, n=n)) for n in self.stage_sizes]

    def _append(self, ops: Ops, b: BufferSet, n: int) -> None:
        x = ops.scratch((n, TEXT["hidden_size"]), torch.float32)
        ops.embed(b["tokens"][:n], b["embed_tokens"], b["length"], x)
        self.text.append(ops, b, x, self.text.angles(ops, b, b[POSITION], n))
        self.text.logits(ops, b, x, b["logits"][:n])
        self.text.advance(ops, b)


def logits(folder: Path, tokens: np.ndarray, segments: list[int], stage_sizes: tuple[int, ...]) -> torch.Tensor:
    model = TextOnly(folder, stage_sizes)
    plan = Plan(CpuBackend(Ops(), threads=1), model, [], {})
    load(model.text.weights(), model.checkpoint, plan.buffers)
    model.text.derive(plan.buffers)
    plan.capture()
    found, start = [], 0
    for segment in segments:
        for size, rows in split(segment, stage_sizes):

            def fill(b: BufferSet, start: int = start, rows: int = rows) -> None:
                b["tokens"][:rows].copy_(torch.from_numpy(tokens[start : start + rows]))
                b["tokens"][rows:] = -1
                b["rope_offsets"].copy_(torch.arange(b["tokens"].numel()))
                b["length"].fill_(rows)
                b["rope_length"].fill_(rows)

            plan.run(Step(f"append_{size}", fill))
            found.append(plan.buffers["logits"][:rows].clone())
            start += rows
    return torch.cat(found)


@pytest.mark.parametrize("tied", [True, False])
def test_logits_of_segments_and_single_tokens_equal_those_of_transformers(tied: bool, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs requirements/test.txt")
    model = random_model(transformers, tied)
    model.save_pretrained(tmp_path, max_shard_size="60kB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, 100)
    ours = logits(tmp_path, tokens, [64, 13, 1, 1, 21], (64, 8, 1))
    with torch.no_grad():
        theirs = model(torch.from_numpy(tokens)[None]).logits[0]
    assert theirs.std() > 0.5
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)


def random_model(transformers: Any, tied: bool) -> Any:
    torch.manual_seed(0)
    config = transformers.Qwen3_5TextConfig(**TEXT, tie_word_embeddings=tied)
    model = transformers.Qwen3_5ForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=parameter[0].numel() ** -0.5)
            elif name.endswith("A_log"):
                # A fast decay leaves outputs near zero, whose norm magnifies rounding beyond any bound.
                parameter.uniform_(0.02, 0.5).log_()
            elif name.endswith("dt_bias"):
                parameter.normal_(mean=-3, std=0.5)
            else:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model
