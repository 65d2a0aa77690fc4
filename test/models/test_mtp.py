# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Text and drafts against transformers' language model and its MtpModel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from flashrt_ros.models.ops import Ops

CONFIGS: dict[str, dict[str, Any]] = {
    "default": {},
    "grouped queries": {
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "linear_num_key_heads": 3,
        "linear_num_value_heads": 6,
        "linear_value_head_dim": 24,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e4,
            "partial_rotary_factor": 0.25,
            "mrope_section": [2, 1, 1],
        },
    },
    "full attention first and last": {
        "num_hidden_layers": 3,
        "layer_types": ["full_attention", "linear_attention", "full_attention"],
        "intermediate_size": 96,
    },
}


SIZES = {"grouped queries": [1]}


class Listening(Ops):
    """Keeps the logits that tokens are chosen by."""

    def __init__(self) -> None:
        super().__init__()
        self.logits: list[Tensor] = []

    def argmax(self, x: Tensor, out: Tensor) -> None:
        super().argmax(x, out)
        self.logits.append(x.clone())


class Peer:
    """The language model and MTP layer of a checkpoint folder, as transformers loads and computes them."""

    def __init__(self, folder: Path, to: Path) -> None:
        transformers = pytest.importorskip("transformers", reason="needs requirements/test.txt")
        layers = pytest.importorskip("transformers.modeling_layers", reason="needs requirements/test.txt")
        values = json.loads((folder / "config.json").read_text())["text_config"]
        mtp = {"num_mtp_layers": 1, "mtp_layer_types": ["full_attention"]}
        config = transformers.Qwen3_5TextConfig(**values, **mtp, tie_word_embeddings=True)
        tensors = {}
        for key, value in load_file(folder / "model.safetensors").items():
            name = key.removeprefix("qwen_vl_interface.model.").replace("model.language_model.", "model.")
            if name.startswith(("model.", "mtp.")) and "visual" not in name:
                tensors[name] = value
        config.save_pretrained(to)
        save_file(tensors, to / "model.safetensors", {"format": "pt"})
        self.model = transformers.Qwen3_5ForCausalLM.from_pretrained(to, attn_implementation="eager").eval()
        self.mtp = layers.MtpModel.from_pretrained(self.model).eval()
        self._cache = transformers.cache_utils.MtpCache

    @torch.no_grad()
    def logits(self, tokens: list[int]) -> tuple[Tensor, Tensor, Any]:
        """Logits of the token behind `tokens`, of the draft behind that token, and the MTP layer's KV."""
        found = self.model(torch.tensor([tokens]), output_hidden_states=True)
        following = torch.tensor([[*tokens[1:], int(found.logits[0, -1].argmax())]])
        cache = self._cache(config=self.mtp.config)
        places = torch.arange(1, len(tokens) + 1)[None]
        _, drafted, _ = self.mtp(following, found.hidden_states[-1], None, places, cache)
        return found.logits[0, -1], drafted[0, -1], cache.layers[0]


@pytest.mark.parametrize("name", CONFIGS)
def test_text_and_drafts_equal_those_of_transformers(name: str, tmp_path: Path, live, talkative) -> None:
    talkative(tmp_path / "ours", 11, text_config=CONFIGS[name], stage_sizes=SIZES.get(name, [24, 8, 1]))
    ops, peer = Listening(), Peer(tmp_path / "ours", tmp_path / "theirs")
    policy = live(tmp_path / "ours", ops)
    instruction = np.random.default_rng(4).integers(0, 250, 37)
    context = policy.model.prompt.instruct(instruction).tokens.tolist()
    policy.run(policy.model.instruct(instruction))
    policy.run(policy.model.text(instruction[:9]))
    context += instruction[:9].tolist()
    steps = policy.say(24)
    drafts = iter(ops.logits)
    text, draft = next(drafts)[0], next(drafts)[0]
    for step in steps:
        expected, expected_draft, _ = peer.logits(context)
        assert int(text.argmax()) == int(expected.argmax()) == step[0]
        assert int(draft.argmax()) == int(expected_draft.argmax())
        torch.testing.assert_close(text, expected, rtol=0, atol=1e-4)
        torch.testing.assert_close(draft, expected_draft, rtol=0, atol=1e-4)
        assert (len(step) == 2) == (int(draft.argmax()) == int(peer.logits([*context, step[0]])[0].argmax()))
        context += step
        text, draft = next(drafts)[len(step) - 1], next(drafts)[0]
    assert {len(step) for step in steps} == {1, 2}
    assert len(context) == int(policy.buffers["position"])
    *_, rows = peer.logits(context)
    live_rows = slice(1, len(context))
    for ours, theirs in ((policy.buffers["mtp.key"], rows.keys), (policy.buffers["mtp.value"], rows.values)):
        torch.testing.assert_close(ours[live_rows], theirs[0].transpose(0, 1)[:-1], rtol=0, atol=1e-4)
