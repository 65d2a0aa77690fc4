# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The embedded policy."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import load_file

from flashrt_ros.models.tiny import JOINTS, write_tiny_checkpoint


def test_it_has_about_seven_million_parameters(tiny: Path) -> None:
    count = sum(tensor.numel() for tensor in load_file(tiny / "model.safetensors").values())
    assert 6e6 < count < 8e6


def test_it_is_a_function_of_its_seed(tiny: Path, tmp_path: Path) -> None:
    again = write_tiny_checkpoint(tmp_path / "again")
    other = write_tiny_checkpoint(tmp_path / "other", seed=1)
    for name in ("config.json", "tokenizer.json", "norm_stats.json", "model.safetensors"):
        assert (again / name).read_bytes() == (tiny / name).read_bytes()
    assert (other / "model.safetensors").read_bytes() != (tiny / "model.safetensors").read_bytes()


def test_it_says_that_it_is_untrained_and_moves_gently(tiny: Path) -> None:
    own = json.loads((tiny / "config.json").read_text())["flashrt"]
    actions = json.loads((tiny / "norm_stats.json").read_text())["norm_stats"]["actions"]
    assert own["trained"] is False
    assert own["action_names"] == list(JOINTS)
    assert own["action_mode"] == "delta"
    assert max(actions["std"]) <= 0.02
