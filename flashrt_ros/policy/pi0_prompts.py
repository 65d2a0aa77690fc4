# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The prompts of pi0 and pi0.5, as openpi's PaligemmaTokenizer and LeRobot's processors write them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.models.policy_model import PolicyConfig
from flashrt_ros.policy.prompts import bad_instruction, check_special, check_text, check_tokens
from flashrt_ros.policy.text import TextTokenizer

_BINS = np.linspace(-1, 1, 256 + 1)[:-1]


class Pi0Prompts:
    """The instruction and a line's end, whatever is observed: pi0's state is a token of its own."""

    def __init__(self, tokenizer: TextTokenizer, limit: int, verbatim: bool = False) -> None:
        """`limit`: how many tokens; `verbatim`: the text as it is, as LeRobot's pi0 takes it."""
        self.tokenizer = tokenizer
        self._limit = limit
        self._verbatim = verbatim
        self._begin = tokenizer.begin_token()

    def instruction(self, text: str) -> NDArray[np.int64]:
        """Tokens of the prompt."""
        longest = self._limit * self.tokenizer.longest_token
        check_text(text, longest, f"more than {self._limit} tokens can hold")
        check_special(text, self.tokenizer.special_tokens_in(text))
        end = "\n"
        lines = (text.removesuffix(end) + end,) if self._verbatim else (cleaned(text), end)
        tokens = np.concatenate(([self._begin], *map(self.tokenizer.encode, lines))).astype(np.int64)
        check_tokens(text, len(tokens), self._limit)
        return tokens

    def prompt(self, kept: NDArray[np.int64], proprio: NDArray[np.float32]) -> NDArray[np.int64]:
        """The same tokens."""
        return kept


class Pi05Prompts:
    """The instruction and the state in words, so that each observation has a prompt of its own."""

    def __init__(self, tokenizer: TextTokenizer, limit: int, config: PolicyConfig, padding: int = 0) -> None:
        """`limit`: how many tokens; `padding`: zeros that stand behind the state."""
        self.tokenizer = tokenizer
        self._limit = limit
        self._letters = config.instruction_size
        self._state_dim = config.state_dim
        self._padding = discretised(np.zeros(padding, np.float32))
        self._begin = tokenizer.begin_token()
        self._longest_number = max(range(-1, 256), key=lambda number: len(tokenizer.encode(f" {number}")))

    def instruction(self, text: str) -> NDArray[np.int64]:
        """The letters of the instruction, once its prompt has been found to fit with the longest state."""
        check_text(text, self._letters, f"the policy {self._letters} at most")
        check_special(text, self.tokenizer.special_tokens_in(text))
        clean = cleaned(text)
        check_tokens(text, len(self._tokens(clean, [self._longest_number] * self._state_dim)), self._limit)
        return np.array([ord(letter) for letter in clean], np.int64)

    def prompt(self, kept: NDArray[np.int64], proprio: NDArray[np.float32]) -> NDArray[np.int64]:
        """The tokens of the instruction with this state, float32 [state_dim]."""
        text = "".join(map(chr, kept.tolist()))
        tokens = self._tokens(text, discretised(proprio))
        if len(tokens) > self._limit:
            raise bad_instruction(text, f"takes {len(tokens)} tokens with this state, the policy {self._limit} at most")
        return tokens

    def _tokens(self, text: str, numbers: list[int]) -> NDArray[np.int64]:
        words = " ".join(map(str, [*numbers, *self._padding]))
        tokens = self.tokenizer.encode(f"Task: {text}, State: {words};\nAction: ")
        return np.concatenate(([self._begin], tokens)).astype(np.int64)


def cleaned(text: str) -> str:
    """The instruction on one line, without underscores."""
    return text.strip().replace("_", " ").replace("\n", " ")


def discretised(proprio: NDArray[np.float32]) -> list[int]:
    """Each normalised number as one of 256 bins from -1 to 1; what is below is -1, what is above 255."""
    numbers: list[int] = (np.digitize(proprio, _BINS) - 1).tolist()
    return numbers
