# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From an instruction to the tokens that a model is given with each observation."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.policy.text import TextTokenizer
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


class Prompts(Protocol):
    """What a session keeps of an instruction, and what is made of it when an observation comes."""

    tokenizer: TextTokenizer

    def instruction(self, text: str) -> NDArray[np.int64]:
        """What is kept of an instruction, int64 [n]; BAD_INSTRUCTION for one that the policy cannot take."""

    def prompt(self, kept: NDArray[np.int64], proprio: NDArray[np.float32]) -> NDArray[np.int64]:
        """The tokens for an observation with this normalised state, int64 [n]."""


class TemplatePrompts:
    """An instruction's tokens in the checkpoint's template, whatever is observed."""

    def __init__(self, template: str, limit: int, tokenizer: TextTokenizer, trimmed: bool = False) -> None:
        """BAD_CHECKPOINT for a template that does not name {instruction} once.

        Args:
            template: the text.
            limit: how many tokens it may have.
            tokenizer: the checkpoint's.
            trimmed: drop white space at the end, as the chat template of Qwen3.5 trims what a user says.
        """
        if template.count("{instruction}") != 1:
            raise FlashrtError(
                ErrorCode.BAD_CHECKPOINT,
                f"config.json flashrt.instruction_template {template!r}: name {{instruction}} once",
            )
        self._template = template
        self._limit = limit
        self._trimmed = trimmed
        self.tokenizer: TextTokenizer = tokenizer

    def instruction(self, text: str) -> NDArray[np.int64]:
        """Tokens of the instruction in the template."""
        check_text(text, self._limit * self.tokenizer.longest_token, f"more than {self._limit} tokens can hold")
        check_special(text, self.tokenizer.special_tokens_in(text))
        told = self._template.replace("{instruction}", text)
        tokens = self.tokenizer.encode(told.rstrip() if self._trimmed else told)
        check_tokens(text, len(tokens), self._limit)
        return tokens

    def prompt(self, kept: NDArray[np.int64], proprio: NDArray[np.float32]) -> NDArray[np.int64]:
        """The same tokens."""
        return kept


def check_text(text: str, limit: int, why: str) -> None:
    """Raise BAD_INSTRUCTION for a text that is empty, longer than `limit` characters, or no Unicode."""
    if not isinstance(text, str):
        raise bad_instruction(str(text), "is no text")
    if not text.strip():
        raise bad_instruction(text, "is empty; say what to do")
    if len(text) > limit:
        # Encoding it first would hold the device's thread up for as long as the sender likes.
        raise bad_instruction(text, f"has {len(text)} characters, {why}")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise bad_instruction(text, "is not Unicode text")


def check_special(text: str, special: list[str]) -> None:
    """Raise BAD_INSTRUCTION for a text that would be read as special tokens."""
    if special:
        raise bad_instruction(text, f"holds {', '.join(special)}, which only the checkpoint's template may")


def check_tokens(text: str, count: int, limit: int) -> None:
    """Raise BAD_INSTRUCTION for a prompt of too many tokens."""
    if count > limit:
        raise bad_instruction(text, f"takes {count} tokens in its template, the policy {limit} at most")


def bad_instruction(text: str, problem: str) -> FlashrtError:
    """What is said about an instruction that cannot be taken."""
    return FlashrtError(ErrorCode.BAD_INSTRUCTION, f"instruction {text[:80]!r} {problem}")
