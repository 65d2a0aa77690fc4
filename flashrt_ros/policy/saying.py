# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Text that the policy says: what may be asked for, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flashrt_ros.models.speech import STOPS, Speech
from flashrt_ros.policy.loading import Policy
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary
from flashrt_ros.runtime.recipe import Say

END_OF_TURN = ("<|im_end|>", "<|endoftext|>")
"""What ends a text in Qwen's chat format."""


@dataclass(frozen=True, slots=True)
class Said:
    """A text that has become part of the context.

    Attributes:
        text: what was said, without special tokens.
        tokens: its tokens, the one that ended it included.
        ended: whether one of `stop` ended it, and not the limit.
        steps: how many tokens each pass over the model's weights said; more than one where drafts held.
        boundary: the boundary behind it.
    """

    text: str
    tokens: tuple[int, ...]
    ended: bool
    steps: tuple[int, ...]
    boundary: Boundary


@dataclass(frozen=True, slots=True)
class Request:
    """A `Say` event in this policy's tokens, int64 [n]: what goes before the text, what ends it, what closes it."""

    prompt: np.ndarray
    stops: tuple[int, ...]
    closing: np.ndarray

    @classmethod
    def of(cls, policy: Policy, event: Say) -> Request:
        """Check the event; BAD_REQUEST, naming what it cannot be; NOT_SUPPORTED by a mute policy."""
        if policy.model.speech is None:
            raise FlashrtError(ErrorCode.NOT_SUPPORTED, f"say: {policy.model.config.name} is no policy that speaks")
        if type(event.max_tokens) is not int or event.max_tokens < 1:  # what a capsule's file can hold
            raise _bad_request(f"max_tokens {event.max_tokens!r}; give an int, 1 or more")
        for text in (event.prompt, event.closing, *event.stop):
            _check_text(text)
        if len(event.stop) > STOPS:
            raise _bad_request(f"{len(event.stop)} stops; give {STOPS} at most")
        stops = tuple(_one_token(policy, text) for text in event.stop)
        prompt, closing = (_tokens(policy, policy.model.speech, text) for text in (event.prompt, event.closing))
        rows, room = len(prompt) + event.max_tokens + len(closing), policy.model.config.condition_capacity
        if rows > room:
            raise _bad_request(
                f"{event.max_tokens} tokens, a prompt of {len(prompt)} and a closing of {len(closing)} make a segment "
                f"of {rows} rows, and the policy's condition_rows has room for {room}; ask for fewer"
            )
        return cls(prompt, stops, closing)


def said(policy: Policy, event: Say, steps: Sequence[Sequence[int]], boundary: Boundary) -> Said:
    """What came of an event, whose steps said these tokens."""
    tokens = tuple(token for step in steps for token in step)
    ended = tokens[-1] in Request.of(policy, event).stops
    return Said(policy.processor.tokenizer.decode(tokens), tokens, ended, tuple(map(len, steps)), boundary)


def _check_text(text: object) -> None:
    try:
        fits = isinstance(text, str) and text.encode() is not None
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise _bad_request(f"{text!r} is no text; give a str of Unicode characters")


def _tokens(policy: Policy, speech: Speech, text: str) -> np.ndarray:
    tokens = policy.processor.tokenizer.encode(text)
    if not speech.image_tokens.isdisjoint(tokens.tolist()):
        raise _bad_request(f"{text!r} holds what stands for an image; show images by observe")
    return tokens


def _one_token(policy: Policy, text: str) -> int:
    tokens = policy.processor.tokenizer.encode(text)
    if len(tokens) != 1:
        raise _bad_request(f"stop {text!r} is {len(tokens)} tokens of this policy; name what is a single one")
    return int(tokens[0])


def _bad_request(problem: str) -> FlashrtError:
    return FlashrtError(ErrorCode.BAD_REQUEST, f"say: {problem}")
