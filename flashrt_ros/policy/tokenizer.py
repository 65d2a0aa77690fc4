# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Text to tokens, as the checkpoint's tokenizer.json says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tokenizers

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.manifest import sha256


class Tokenizer:
    """A Hugging Face `tokenizer.json`.

    Attributes:
        path: of the file.
        largest_token: the largest token that `encode` can give.
        largest_text_token: the largest that it gives for a text without special tokens.
        longest_token: characters of the longest token.
        fingerprint: sha256 of the file.
    """

    def __init__(self, path: str | Path) -> None:
        """Read `path`; BAD_CHECKPOINT if it is absent or is no tokenizer."""
        self.path = Path(path)
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"tokenizer {path}: {error.strerror}") from error
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(content.decode())
        # The library raises plain Exception for a file that it cannot read.
        except Exception as error:
            raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"tokenizer {path}: not a tokenizer.json: {error}") from error
        # Padding and truncation that a trainer saved must not alter an instruction.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._special = {
            token: added.content for token, added in self._tokenizer.get_added_tokens_decoder().items() if added.special
        }
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self.largest_token = max(vocabulary.values(), default=-1)
        self.largest_text_token = max(set(vocabulary.values()) - self._special.keys(), default=-1)
        self.longest_token = max(map(len, vocabulary), default=0)
        self.fingerprint = sha256(content)

    def encode(self, text: str) -> np.ndarray:
        """Tokens of `text` as int64 [n], without those that the file's post-processor would add."""
        return np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64)

    def begin_token(self) -> int:
        """The token `<bos>`; BAD_CHECKPOINT if there is none."""
        token = self._tokenizer.token_to_id("<bos>")
        if token is None:
            raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"tokenizer {self.path}: has no token <bos>")
        return int(token)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of `tokens`, without special tokens."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def special_tokens_in(self, text: str) -> list[str]:
        """The special tokens (turn markers, image placeholders) that `text` would be read as, each once."""
        return list(
            dict.fromkeys(self._special[token] for token in self.encode(text).tolist() if token in self._special)
        )
