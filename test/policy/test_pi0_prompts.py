# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import sentencepiece
import tokenizers

from flashrt_ros.models.tiny_pi0 import write_tokenizer
from flashrt_ros.policy.pi0_prompts import Pi0Prompts, Pi05Prompts, discretised
from flashrt_ros.policy.text import SentencePiece, find_tokenizer
from flashrt_ros.runtime.errors import ErrorCode

BOS = 2


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "paligemma_tokenizer.model"
    write_tokenizer(path)
    return path


@pytest.fixture
def theirs(model: Path) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_file=str(model))


def adaptive(model: Path, state_dim: int = 3, limit: int = 100) -> Pi05Prompts:
    config = SimpleNamespace(instruction_size=64, state_dim=state_dim)
    return Pi05Prompts(SentencePiece(model), limit, config)


def test_pi0s_prompt_is_openpis(model: Path, theirs) -> None:
    prompts = Pi0Prompts(SentencePiece(model), 40)
    expected = theirs.encode("press the red button", add_bos=True) + theirs.encode("\n")
    kept = prompts.instruction(" press_the red\nbutton ")
    assert kept.dtype == np.int64
    assert kept.tolist() == expected
    assert prompts.prompt(kept, np.zeros(3, np.float32)) is kept


def test_lerobots_pi0_takes_the_text_as_it_is(model: Path, theirs) -> None:
    prompts = Pi0Prompts(SentencePiece(model), 40, verbatim=True)
    expected = theirs.encode(" press_the red\nbutton \n", add_bos=True)
    for text in (" press_the red\nbutton ", " press_the red\nbutton \n"):
        assert prompts.instruction(text).tolist() == expected


def test_pi05s_prompt_is_openpis_and_follows_the_state(model: Path, theirs) -> None:
    prompts = adaptive(model)
    kept = prompts.instruction(" press_the red\nbutton ü ")
    for state, words in (([-1.5, 0.0, 1.0], "-1 128 255"), ([0.999, -1.0, -0.5], "255 0 64")):
        text = f"Task: press the red button ü, State: {words};\nAction: "
        assert prompts.prompt(kept, np.array(state, np.float32)).tolist() == theirs.encode(text, add_bos=True)


def test_a_padded_state_has_zeros_behind_its_joints(model: Path, theirs) -> None:
    prompts = Pi05Prompts(SentencePiece(model), 100, SimpleNamespace(instruction_size=64, state_dim=1), padding=2)
    tokens = prompts.prompt(prompts.instruction("press"), np.array([-1.0], np.float32))
    assert tokens.tolist() == theirs.encode("Task: press, State: 0 128 128;\nAction: ", add_bos=True)


def test_numbers_are_binned_as_openpi_bins_them() -> None:
    values = np.linspace(-1.2, 1.2, 999).astype(np.float32)
    assert discretised(values) == (np.digitize(values, bins=np.linspace(-1, 1, 257)[:-1]) - 1).tolist()
    assert (discretised(values)[0], discretised(values)[-1]) == (-1, 255)


def test_an_instruction_that_may_not_fit_with_some_state_is_refused_at_once(model: Path, refuses) -> None:
    kept = adaptive(model, limit=100).instruction("press the red button")
    worst = len(adaptive(model, limit=100).prompt(kept, np.ones(3, np.float32)))
    adaptive(model, limit=worst).instruction("press the red button")
    with refuses(ErrorCode.BAD_INSTRUCTION, f"takes {worst} tokens in its template, the policy {worst - 1} at most"):
        adaptive(model, limit=worst - 1).instruction("press the red button")


@pytest.mark.parametrize(
    ("text", "named"),
    [(" \n", "is empty"), ("x" * 9999, "has 9999 characters"), ("a\ud800", "is not Unicode"), ("qz" * 25, "takes ")],
)
def test_an_instruction_that_cannot_be_taken_is_refused(model: Path, text: str, named: str, refuses) -> None:
    for prompts in (Pi0Prompts(SentencePiece(model), 20), adaptive(model, limit=40)):
        with refuses(ErrorCode.BAD_INSTRUCTION, named):
            prompts.instruction(text)


def test_the_tokenizer_is_found_in_either_form(model: Path, tmp_path: Path, refuses) -> None:
    with refuses(ErrorCode.BAD_CHECKPOINT, "holds no tokenizer", "paligemma_tokenizer.model"):
        find_tokenizer(tmp_path)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with refuses(ErrorCode.BAD_CHECKPOINT, "has no token <bos>"):
        Pi0Prompts(find_tokenizer(tmp_path), 20)
    tokenizer.add_special_tokens(["<bos>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    prompts = Pi0Prompts(find_tokenizer(tmp_path), 20)
    assert prompts.instruction("ab").tolist() == [2, 0, 1]
    with refuses(ErrorCode.BAD_INSTRUCTION, "<bos>"):
        prompts.instruction("a<bos>b")
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer.json").rename(tmp_path / "tokenizer" / "tokenizer.json")  # where LeRobot saves it
    assert find_tokenizer(tmp_path).encode("ab").tolist() == [0, 1]
    (tmp_path / "tokenizer.model").write_bytes(model.read_bytes())
    assert find_tokenizer(tmp_path).begin_token() == BOS
    (tmp_path / "tokenizer.model").write_bytes(b"no model")
    with refuses(ErrorCode.BAD_CHECKPOINT, "not a sentencepiece model"):
        find_tokenizer(tmp_path)
