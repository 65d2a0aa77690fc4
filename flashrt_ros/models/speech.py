# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Greedy text: which stages say it, and what their inputs hold.

`say_begin` chooses the first token behind the newest row. Each `say_step` offers that token and the drafts behind it
as rows of one stage, takes in those that hold, and chooses and drafts what comes next. Plain decoding is the same
stage with fewer rows that count. What was chosen, drafted and accepted lies in integer buffers, so a stage runs
without asking the host, which reads the tokens behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from flashrt_ros.models.append import SEGMENT_START
from flashrt_ros.models.config import HybridConfig
from flashrt_ros.models.mtp import Mtp
from flashrt_ros.models.ops import Ops
from flashrt_ros.models.qwen3_5_text import LENGTH, POSITION, ROPE_DELTA, ROPE_OFFSETS, TextModel
from flashrt_ros.runtime.backend import Inputs, Stage
from flashrt_ros.runtime.buffers import Buffer, BufferSet
from flashrt_ros.runtime.plan import FAULT, Step

STOPS = 8
"""Room for tokens that end a text."""

_TOKENS, _ACCEPTED, _LAST, _ROW = "say.tokens", "say.accepted", "say.last", "say.row"
_STOPS, _ONE, _BACK = "say.stops", "say.one", "say.back"
_SAID, _SAID_ROWS = "said", "said_rows"
_SCALARS = (_ACCEPTED, _LAST, _ROW)


class Speech:
    """The stages that say something, over a language model and, where there is one, its MTP layer."""

    def __init__(self, text: TextModel, mtp: Mtp | None, config: HybridConfig, faults: tuple[int, int]) -> None:
        """`faults` are the bits for hidden states and for drafts."""
        self._text = text
        self._mtp = mtp
        self._all = config.condition == "all"
        self._hidden_fault, self._draft_fault = faults
        self.rows = 1 + (mtp.drafts if mtp is not None else 0)
        """Rows that one step offers at most."""
        images = config.image_tokens
        self.image_tokens = frozenset((images.start, images.pad, images.end))
        """What stands around and for an image: no text holds them."""

    def buffers(self) -> list[Buffer]:
        """Inputs, outputs and what one stage leaves to the next."""
        return [
            Buffer(_STOPS, (STOPS,), torch.int64, "input"),
            *(Buffer(name, (1,), torch.int64, "input") for name in (_ONE, _BACK)),
            Buffer(_TOKENS, (self.rows,), torch.int64, "scratch"),
            *(Buffer(name, (1,), torch.int64, "scratch") for name in _SCALARS),
            Buffer(_SAID, (self.rows,), torch.int64, "output", memory="host"),
            Buffer(_SAID_ROWS, (1,), torch.int64, "output", memory="host"),
        ]

    def stages(self) -> list[Stage]:
        """Both stages."""
        return [Stage("say_begin", self._begin), Stage("say_step", self._step)]

    def begin(self) -> Step:
        """Choose the token behind the newest row, and draft what follows it."""
        return Step("say_begin", lambda b: _place(b, self.rows))

    def step(self, stops: Sequence[int], rows: int, start: int) -> Step:
        """Say up to `rows` tokens, of which the first comes to stand at row `start` of its segment."""
        fill = _fill(stops, min(rows, self.rows), start, self.rows)
        return Step("say_step", fill)

    def said(self, b: BufferSet) -> list[int]:
        """The tokens that the newest step has said; to be read behind the fence."""
        return [int(token) for token in b[_SAID][: int(b[_SAID_ROWS])]]

    def _begin(self, ops: Ops, b: BufferSet) -> None:
        hidden, tokens = self._scratch(ops, 1), b[_TOKENS]
        ops.last_row(b["condition"], b["condition_rows"], hidden)
        self._choose(ops, b, hidden, tokens[:1])
        ops.set_sum(b[POSITION], b[_BACK], b[_ROW])
        self._draft(ops, b, hidden, tokens)

    def _step(self, ops: Ops, b: BufferSet) -> None:
        text, tokens, n = self._text, b[_TOKENS], self.rows
        accepted, last = b[_ACCEPTED], b[_LAST]
        x, chosen = self._scratch(ops, n), ops.scratch((n,), torch.int64)
        ops.embed(tokens, b["embed_tokens"], b[LENGTH], x)
        offered = text.offer(ops, b, x, text.angles(ops, b, b[POSITION], n))
        self._choose(ops, b, x, chosen)
        ops.accept(tokens, chosen, b[LENGTH], b[_STOPS], accepted, last)
        ops.copy(tokens, b[_SAID])
        ops.copy(accepted, b[_SAID_ROWS])
        text.keep(ops, b, offered, accepted)
        start = b[POSITION] if self._all else b[SEGMENT_START]
        ops.append_rows(x, b[FAULT], self._hidden_fault, start, accepted, b["condition"], b["condition_rows"])
        ops.copy(b[POSITION], b[_ROW])
        ops.advance(accepted, accepted, b[POSITION], b[ROPE_DELTA])
        ops.take_row(chosen.view(n, 1), last, tokens[:1])
        if self._mtp is not None:
            self._draft_behind(ops, b, self._mtp, x, chosen)

    def _choose(self, ops: Ops, b: BufferSet, hidden: Tensor, out: Tensor) -> None:
        logits = ops.scratch((hidden.shape[0], self._text.config.vocab_size), self._text.dtype)
        self._text.logits(ops, b, hidden, logits)
        ops.argmax(logits, out)

    def _draft_behind(self, ops: Ops, b: BufferSet, mtp: Mtp, hidden: Tensor, chosen: Tensor) -> None:
        """Give the MTP layer the rows that hold, each with the token chosen behind it, and draft from the last."""
        accepted, row, tokens = b[_ACCEPTED], b[_ROW], b[_TOKENS]
        embedding, newest = self._scratch(ops, self.rows), self._scratch(ops, 1)
        ops.embed(chosen, b["embed_tokens"], accepted, embedding)
        angles = self._text.angles(ops, b, row, self.rows, ahead=1)
        drafted = mtp.append(ops, b, embedding, hidden, angles, row, accepted)
        ops.check_finite(drafted, b[FAULT], self._draft_fault, rows=accepted)
        ops.take_row(drafted, b[_LAST], newest[0])
        self._choose(ops, b, newest, tokens[1:2])
        ops.copy(b[POSITION], row)
        self._draft(ops, b, newest, tokens[1:])

    def _draft(self, ops: Ops, b: BufferSet, hidden: Tensor, tokens: Tensor) -> None:
        """Draft tokens[1:], one from the other; `hidden` [1, hidden] is of the row before that of tokens[0]."""
        row, one = b[_ROW], b[_ONE]
        for draft in range(1, len(tokens)):
            assert self._mtp is not None
            embedding = self._scratch(ops, 1)
            ops.embed(tokens[draft - 1 : draft], b["embed_tokens"], one, embedding)
            angles = self._text.angles(ops, b, row, 1, ahead=1)
            hidden = self._mtp.append(ops, b, embedding, hidden, angles, row, one)
            self._choose(ops, b, hidden, tokens[draft : draft + 1])
            ops.increment(row)

    def _scratch(self, ops: Ops, n: int) -> Tensor:
        return ops.scratch((n, self._text.config.hidden_size), self._text.dtype)


def _fill(stops: Sequence[int], length: int, start: int, rows: int) -> Callable[[Inputs], None]:
    def fill(b: Inputs) -> None:
        _place(b, rows)
        b[LENGTH].fill_(length)
        b[SEGMENT_START].fill_(start)
        b[_STOPS].fill_(-1)
        b[_STOPS][: len(stops)].copy_(torch.tensor(stops, dtype=torch.int64))

    return fill


def _place(b: Inputs, rows: int) -> None:
    """Text takes one rotary position a row, on all axes; drafts stand one row ahead of what they are made from."""
    b[ROPE_OFFSETS][:, : rows + 1].copy_(torch.arange(rows + 1))
    b[_ONE].fill_(1)
    b[_BACK].fill_(-1)
