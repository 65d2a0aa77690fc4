# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Segments: rows and rotary positions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashrt_ros.models.config import read_config
from flashrt_ros.models.prompt import Prompt
from flashrt_ros.models.tiny import tiny_config
from flashrt_ros.runtime.errors import FlashrtError

IDS = {"<|vision_start|>": 301, "<|vision_end|>": 302, "<|image_pad|>": 303}


def prompt(**own: Any) -> Prompt:
    config = read_config(json.loads(json.dumps(tiny_config(IDS, own))))
    return Prompt(config, lambda text: [ord(letter) for letter in text])


def test_an_instruction_stands_in_its_turn() -> None:
    segment = prompt(prompt={"instruct": "a{instruction}b", "observe": "{images}"}).instruct(np.array([7, 8]))
    assert segment.tokens.tolist() == [97, 7, 8, 98]
    assert segment.image_rows.tolist() == [-1] * 4
    assert segment.offsets.tolist() == [[0, 1, 2, 3]] * 3
    assert segment.rope_length == segment.rows == 4


def test_images_stand_between_their_tokens_and_take_as_many_positions_as_their_longer_side() -> None:
    segment = prompt(image_size=[32, 96]).observe(np.array([7]))
    assert segment.tokens.tolist() == [301, 303, 303, 303, 302] * 2
    assert segment.image_rows.tolist() == [-1, 0, 1, 2, -1, -1, 3, 4, 5, -1]
    time, row, column = segment.offsets.tolist()
    assert time == [0, 1, 1, 1, 4, 5, 6, 6, 6, 9]
    assert row == time
    assert column == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert segment.rope_length == 10


def test_a_turn_holds_images_before_text() -> None:
    own = {"layout": "starvla", "prompt": {"observe": "u{images}{instruction}a"}, "image_size": [32, 32]}
    segment = prompt(**own).observe(np.array([7, 8]))
    assert segment.tokens.tolist() == [117, *[301, 303, 302] * 2, 7, 8, 97]


@pytest.mark.parametrize(
    ("layout", "texts", "name"),
    [
        ("append", {"instruct": "no place", "observe": "{images}"}, "instruct"),
        ("append", {"instruct": "{instruction}", "observe": "{images}{instruction}"}, "observe"),
        ("append", {"instruct": "{instruction}", "observe": "{images}{images}"}, "observe"),
        ("starvla", {"observe": "{images}"}, "observe"),
    ],
)
def test_a_prompt_without_its_places_is_refused(layout: str, texts: dict[str, str], name: str) -> None:
    with pytest.raises(FlashrtError, match=rf"flashrt.prompt.{name}: expected .* once"):
        prompt(layout=layout, prompt=texts)


def test_the_tokenizer_of_the_checkpoint_reads_the_special_tokens(tiny: Path, live) -> None:
    model = live(tiny).model
    segment = model.prompt.instruct(np.array([65]))
    vocabulary = json.loads((tiny / "tokenizer.json").read_text())
    ids = {token["content"]: token["id"] for token in vocabulary["added_tokens"]}
    assert segment.tokens[0] == ids["<|im_start|>"]
    assert segment.tokens[-2] == ids["<|im_end|>"]
    assert segment.rows == len(["<|im_start|>", *"user\n", 65, "<|im_end|>", "\n"])
