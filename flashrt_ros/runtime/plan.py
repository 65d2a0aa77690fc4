# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The stages and buffers of one policy on one backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from flashrt_ros.runtime.backend import Backend, Inputs, Replay, Stage
from flashrt_ros.runtime.buffers import Buffer, BufferSet
from flashrt_ros.runtime.manifest import Manifest, layout
from flashrt_ros.runtime.progress import Tell, tell_nobody

AT_CURSOR = -1
"""`Work.first_row` of work that appends behind the rows written so far."""

FAULT = "fault"
"""Name of the output buffer (int32 [1], host memory) in which stages set one bit for each failed check."""


@dataclass(frozen=True, slots=True)
class Step:
    """One replay: `fill` writes the stage's inputs, then the stage runs."""

    stage: str
    fill: Callable[[Inputs], None] | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """The steps from one boundary to the next.

    They write rows [first_row, first_row + rows) of every buffer that is bounded by "position"; AT_CURSOR:
    behind the live rows; None: no row is written.
    """

    steps: tuple[Step, ...]
    rows: int = 0
    first_row: int | None = None


class Computation(Protocol):
    """What a model gives a plan: buffers, stages, and the names of the faults its stages can flag."""

    stage_sizes: tuple[int, ...]
    faults: tuple[str, ...]

    def buffers(self) -> list[Buffer]:
        """Every buffer that the stages use, FAULT among them."""

    def stages(self) -> list[Stage]:
        """Every stage, in an order in which they can be captured."""


class Plan:
    """Allocates the buffers, captures every stage once, and replays them by name."""

    def __init__(self, backend: Backend, model: Computation, extra: Sequence[Buffer], manifest: Manifest) -> None:
        """`extra` are the session's buffers; `manifest` names weights, config, tokenizer and normaliser."""
        self.backend = backend
        self.buffers = BufferSet([*model.buffers(), *extra], backend.allocate)
        self.faults = model.faults
        self.stage_sizes = tuple(sorted(model.stage_sizes))
        self._stages = model.stages()
        self._replays: dict[str, Replay] = {}
        self._manifest = manifest
        self.replays = 0
        """How many stages have been run: who finds it as it was has its scratch as it was too."""

    def capture(self, tell: Tell = tell_nobody) -> None:
        """Capture every stage, once, after the weights have been loaded."""
        self._replays = self.backend.capture(self._stages, self.buffers, tell)

    def run(self, step: Step) -> None:
        """Fill the stage's inputs and replay it."""
        if step.fill is not None:
            self.backend.fill(self.buffers, step.fill)
        self.replays += 1
        self._replays[step.stage]()

    def clear_faults(self) -> None:
        """Forget what earlier stages flagged."""
        self.buffers[FAULT].zero_()

    def fence(self) -> str:
        """Wait for all work so far; what went wrong since `clear_faults`, empty if nothing."""
        trouble = self.backend.fence()
        bits = int(self.buffers[FAULT][0])
        flagged = [name for bit, name in enumerate(self.faults) if bits >> bit & 1]
        return "; ".join([trouble, *flagged] if trouble else flagged)

    def split(self, rows: int) -> list[tuple[int, int]]:
        """(stage size, valid rows) pairs that cover a segment; depends on the length alone."""
        return split(rows, self.stage_sizes)

    def manifest(self) -> Manifest:
        """What must be equal for this plan's bytes to mean the same elsewhere."""
        return {
            **self._manifest,
            "layout": layout(self.buffers.state()),
            "numerics": dict(self.backend.numerics()),
        }


def split(rows: int, stage_sizes: Sequence[int]) -> list[tuple[int, int]]:
    """As many of the largest stage as fit, then the smallest stage that holds the rest (padded)."""
    sizes = sorted(stage_sizes)
    whole, rest = divmod(rows, sizes[-1])
    parts = [(sizes[-1], sizes[-1])] * whole
    if rest:
        parts.append((next(size for size in sizes if size >= rest), rest))
    return parts
