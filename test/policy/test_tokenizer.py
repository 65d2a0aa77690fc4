# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from pathlib import Path

import numpy as np

from flashrt_ros.policy.tokenizer import Tokenizer
from flashrt_ros.runtime.errors import ErrorCode
from flashrt_ros.runtime.manifest import sha256


def test_encodes_the_whole_text_and_nothing_more(tokenizer_file: Path) -> None:
    tokenizer = Tokenizer(tokenizer_file)
    tokens = tokenizer.encode("grüße it")
    assert tokens.dtype == np.int64
    assert tokens.shape == (len("grüße it".encode()),)  # not truncated to 4
    assert tokenizer.encode("it").shape == (2,)  # not padded to 8
    assert tokenizer.fingerprint == sha256(tokenizer_file.read_bytes())


def test_finds_special_tokens(tokenizer_file: Path) -> None:
    tokenizer = Tokenizer(tokenizer_file)
    assert tokenizer.special_tokens_in("a <|image_pad|><|image_pad|> b") == ["<|image_pad|>"]
    assert tokenizer.special_tokens_in("a <|image|> b") == []


def test_refuses_what_is_no_tokenizer(tmp_path: Path, refuses) -> None:
    path = tmp_path / "tokenizer.json"
    with refuses(ErrorCode.BAD_CHECKPOINT, str(path), "No such file"):
        Tokenizer(path)
    for content in (b"", b"{}", b"\xff\xfe"):
        path.write_bytes(content)
        with refuses(ErrorCode.BAD_CHECKPOINT, str(path), "not a tokenizer.json"):
            Tokenizer(path)
