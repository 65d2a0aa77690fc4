# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoint folders of openpi and LeRobot, as people have them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from PIL import Image

from flashrt_ros.models.synthetic_pi0 import RandomPi0Checkpoint
from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.models.tiny_pi0 import STATE, write_tiny_pi0
from flashrt_ros.policy.loading import load_policy
from flashrt_ros.policy.opening import open_checkpoint
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.session import Session
from flashrt_ros.runtime.errors import ErrorCode
from flashrt_ros.tools.audit import random_observation


@pytest.mark.parametrize("kind", ["pi0", "pi05"])
def test_both_layouts_are_served_and_plan_the_same(kind: str, tmp_path: Path) -> None:
    chunks = []
    for layout in ("openpi", "lerobot"):
        policy = load_policy(write_tiny_pi0(tmp_path / layout, kind, layout), device="cpu")
        session = Session(policy)
        session.begin("press the red button", seed=3)
        session.observe(random_observation(policy, np.random.default_rng(0), 1))
        chunks.append(session.act().actions)
    # Their conventions differ by the epsilon.
    np.testing.assert_allclose(chunks[0], chunks[1], atol=1e-3)
    assert not np.array_equal(chunks[0], chunks[1])


def test_joints_that_nothing_names_are_numbered(tmp_path: Path) -> None:
    folder = write_tiny_pi0(tmp_path, "pi0")
    (folder / "flashrt.json").unlink()
    config = open_checkpoint(folder).model.config
    assert config.state_names == config.action_names[:0] + tuple(f"state_{index}" for index in range(len(STATE)))
    assert config.action_names[-1] == f"action_{len(STATE) - 1}"


def test_white_space_behind_an_instruction_is_trimmed_where_qwens_chat_template_does_so(tmp_path: Path) -> None:
    told = {}
    for layout in ("starvla", "append"):
        prompts = open_checkpoint(write_tiny_checkpoint(tmp_path / layout, layout=layout)).prompts
        told[layout] = [prompts.instruction(text).tolist() for text in ("press", " press \n")]
    assert told["starvla"][1] == [told["append"][1][0], *told["starvla"][0]]
    assert len(told["append"][1]) == 8


def test_an_asset_that_is_no_name_is_refused(tmp_path: Path, refuses) -> None:
    folder = write_tiny_pi0(tmp_path, "pi0", asset=5)
    with refuses(ErrorCode.BAD_CHECKPOINT, "flashrt.json.asset: expected a non-empty string, found 5"):
        open_checkpoint(folder)


def test_tensors_take_the_place_of_the_files(tmp_path: Path) -> None:
    folder = write_tiny_pi0(tmp_path, "pi0")
    tensors = RandomPi0Checkpoint(open_checkpoint(folder).model.config)
    (folder / "model.safetensors").unlink()
    assert open_checkpoint(folder, tensors=tensors).model.manifest()["weights"] == {"random": "seed 0 on cpu"}


def test_only_cameras_that_are_there_are_encoded(tmp_path: Path) -> None:
    folder = write_tiny_pi0(tmp_path, "pi0")
    assert open_checkpoint(folder, views=["base_0_rgb"]).model.config.views == ("base_0_rgb",)


def test_delta_actions_are_relative_to_the_measured_joints(tmp_path: Path) -> None:
    policies = {
        mode: load_policy(write_tiny_pi0(tmp_path / mode, "pi0", action_mode=mode), device="cpu")
        for mode in ("absolute", "delta")
    }
    seen = random_observation(policies["delta"], np.random.default_rng(0), 1)
    chunks = {}
    for mode, policy in policies.items():
        session = Session(policy)
        session.begin("press the red button")
        session.observe(seen)
        chunks[mode] = session.act().actions
    np.testing.assert_allclose(chunks["delta"] - chunks["absolute"], np.tile(seen.state, (10, 1)), atol=1e-12)


def test_the_prompt_of_pi05_holds_the_state_as_it_was_trained_to(tmp_path: Path) -> None:
    proprio, prompts = np.full(len(STATE), -1, np.float32), {}
    for how in ("joints", "padded", "none"):
        policy = load_policy(write_tiny_pi0(tmp_path / how, "pi05", state_prompt=how), device="cpu")
        Session(policy).begin("press the red button")
        made = policy.processor
        prompts[how] = made.tokenizer.decode(made.prompt(made.instruction("press"), proprio).tolist())
    words = " ".join("0" * len(STATE))
    assert prompts["joints"] == f"Task: press, State: {words};\nAction: "
    assert prompts["padded"] == f"Task: press, State: {words} 128 128;\nAction: "
    assert prompts["none"] == "press\n"


def test_a_special_token_behind_the_vocabulary_is_no_fault(tmp_path: Path, refuses) -> None:
    folder = write_tiny_pi0(tmp_path, "pi0", "lerobot")
    (folder / "paligemma_tokenizer.model").unlink()
    vocabulary = {"<bos>": 0, "a": 1, "\n": 2, **{f"<{number}>": number for number in range(3, 400)}}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.add_special_tokens(["<bos>", "<image>"])  # the latter is 400, as many as the vocabulary has
    tokenizer.save(str(folder / "tokenizer.json"))
    prompts = open_checkpoint(folder).prompts
    assert prompts.instruction("a").tolist() == [0, 1, 2]
    with refuses(ErrorCode.BAD_INSTRUCTION, "<image>"):
        prompts.instruction("a<image>")
    tokenizer.add_tokens(["b"])
    tokenizer.save(str(folder / "tokenizer.json"))
    with refuses(ErrorCode.BAD_CHECKPOINT, "gives tokens up to 401, the checkpoint's vocab_size is 400"):
        open_checkpoint(folder)


def test_lerobots_pi0_is_told_the_instruction_verbatim(tmp_path: Path) -> None:
    told = {}
    for layout in ("openpi", "lerobot"):
        opened = open_checkpoint(write_tiny_pi0(tmp_path / layout, "pi0", layout))
        told[layout] = opened.prompts.tokenizer.decode(opened.prompts.instruction("press_the button").tolist())
    assert told == {"openpi": "press the button\n", "lerobot": "press_the button\n"}


def test_a_tokenizer_or_type_of_another_checkpoint_is_refused(tmp_path: Path, refuses) -> None:
    folder = write_tiny_pi0(tmp_path, "pi05")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "type": "pi0"}))
    with refuses(ErrorCode.BAD_CHECKPOINT, "config.json says pi0, but the tensors are of pi05"):
        open_checkpoint(folder)
    config["language"]["vocab_size"] = 399
    (folder / "config.json").write_text(json.dumps(config))
    with refuses(ErrorCode.BAD_CHECKPOINT, "is [400, 64] where the config says [399, 64]"):
        open_checkpoint(folder)


def test_a_session_shows_the_model_what_starvla_shows_it(tmp_path: Path) -> None:
    own = {"image_size": [64, 64], "min_pixels": 128 * 96, "condition_rows": 256}
    policy = load_policy(write_tiny_checkpoint(tmp_path, layout="starvla", **own), device="cpu")
    random = np.random.default_rng(0)
    assert policy.model.config.image_size == (128, 128)
    # A camera that has the size of the tower, as LIBERO's 256x256 do, is brought to the smaller one all the same.
    images = {view: random.integers(0, 256, (128, 128, 3), np.uint8) for view in policy.model.config.views}
    session = Session(policy)
    session.begin("press the red button")
    session.observe(Observation(images, np.zeros(6), 1))
    theirs = [Image.fromarray(image).resize((64, 64)).resize((128, 128)) for image in images.values()]
    assert np.array_equal(policy.plan.buffers["images"].numpy(), np.stack([np.asarray(image) for image in theirs]))
