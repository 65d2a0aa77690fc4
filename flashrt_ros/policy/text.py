# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers of checkpoints, in whichever file they come."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from flashrt_ros.policy.tokenizer import Tokenizer
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.manifest import sha256

_PIECES = ("paligemma_tokenizer.model", "tokenizer.model")
"""What openpi and Hugging Face call PaliGemma's sentencepiece file."""

_SAVED = "tokenizer"
"""Folder that LeRobot's tokenizer step is saved to, since 0.6.0 (processor/tokenizer_processor.py)."""


class TextTokenizer(Protocol):
    """Text to tokens.

    Attributes:
        path: of the file.
        largest_token: the largest token that `encode` can give.
        largest_text_token: the largest that it gives for a text without special tokens.
        longest_token: characters of the longest token.
        fingerprint: sha256 of the file.
    """

    path: Path
    largest_token: int
    largest_text_token: int
    longest_token: int
    fingerprint: str

    def encode(self, text: str) -> np.ndarray:
        """Tokens of `text`, int64 [n], without any that stand for its beginning or end."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of `tokens`, without special tokens."""

    def special_tokens_in(self, text: str) -> list[str]:
        """The special tokens that `text` would be read as, each once."""

    def begin_token(self) -> int:
        """The token that stands for the beginning of a text; BAD_CHECKPOINT if there is none."""


class SentencePiece:
    """A sentencepiece model; its control tokens are no text, so that none can be written."""

    def __init__(self, path: str | Path) -> None:
        """Read `path`; BAD_CHECKPOINT if it is absent or is no such model."""
        import sentencepiece  # only checkpoints with such a file need it

        self.path = Path(path)
        try:
            content = self.path.read_bytes()
            if not content:  # which loads nothing, and says so nowhere
                raise RuntimeError("it is empty")
            self._model = sentencepiece.SentencePieceProcessor(model_proto=content)
        except (OSError, RuntimeError) as error:
            message = f"tokenizer {path}: not a sentencepiece model: {error}"
            raise FlashrtError(ErrorCode.BAD_CHECKPOINT, message) from error
        self.largest_token = self.largest_text_token = self._model.get_piece_size() - 1
        self.longest_token = max(len(self._model.id_to_piece(token)) for token in range(self.largest_token + 1))
        self.fingerprint = sha256(content)

    def encode(self, text: str) -> np.ndarray:
        """See TextTokenizer.encode."""
        return np.array(self._model.encode(text), dtype=np.int64)

    def decode(self, tokens: Sequence[int]) -> str:
        """See TextTokenizer.decode."""
        return str(self._model.decode(list(tokens)))

    def special_tokens_in(self, text: str) -> list[str]:
        """None."""
        return []

    def begin_token(self) -> int:
        """See TextTokenizer.begin_token."""
        token = int(self._model.bos_id())
        if token < 0:
            raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"tokenizer {self.path}: has no token for a text's beginning")
        return token


def find_tokenizer(folder: Path) -> TextTokenizer:
    """The tokenizer of a folder, or of `tokenizer` in it: a sentencepiece model, or else tokenizer.json.

    Raises:
        FlashrtError: BAD_CHECKPOINT, there is none, or it cannot be read.
    """
    for place in (folder, folder / _SAVED):
        for name in _PIECES:
            if (place / name).exists():
                return SentencePiece(place / name)
        if (place / "tokenizer.json").exists():
            return Tokenizer(place / "tokenizer.json")
    raise FlashrtError(
        ErrorCode.BAD_CHECKPOINT,
        f"{folder}: holds no tokenizer; put PaliGemma's {_PIECES[0]} (or tokenizer.json) into it, whose licence has to "
        "be accepted where it is published",
    )
