# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A computation small enough to check by hand: it appends rows and sums them."""

from __future__ import annotations

import pytest
import torch

from flashrt_ros.runtime.backend import CpuBackend, Stage
from flashrt_ros.runtime.buffers import Buffer, BufferSet
from flashrt_ros.runtime.lineage import Boundary
from flashrt_ros.runtime.live import LiveState
from flashrt_ros.runtime.plan import AT_CURSOR, Plan, Step, Work
from flashrt_ros.runtime.recipe import Begin, Recipe

ROWS = 64


class Adder:
    """`total` is the sum of all rows appended; a negative value is flagged as a fault."""

    stage_sizes = (4, 1)
    faults = ("value is negative",)

    def buffers(self) -> list[Buffer]:
        return [
            Buffer("rows", (ROWS, 2), torch.float32, "state", "context", rows="position"),
            Buffer("position", (1,), torch.int64, "state", "context"),
            Buffer("total", (2,), torch.float32, "state", "context"),
            Buffer("noise", (1,), torch.int64, "state", "generator", memory="host"),
            Buffer("values", (4, 2), torch.float32, "input"),
            Buffer("length", (1,), torch.int64, "input"),
            Buffer("fault", (1,), torch.int32, "output", memory="host"),
        ]

    def stages(self) -> list[Stage]:
        return [Stage("append", append)]

    def append(self, *values: float, first_row: int = AT_CURSOR) -> Work:
        steps = tuple(Step("append", lambda b, value=value: fill(b, value)) for value in values)
        return Work(steps, len(values), first_row)


def fill(b: BufferSet, value: float) -> None:
    b["values"][0] = value
    b["length"][0] = 1


def append(ops: object, b: BufferSet) -> None:
    row = int(b["position"][0])
    b["rows"][row] = b["values"][0]
    b["total"].add_(b["values"][0])
    b["position"].add_(b["length"])
    b["fault"].bitwise_or_((b["values"][0, 0] < 0).to(torch.int32))


class Head:
    """Drives a LiveState the way a session does."""

    def __init__(self, journal_bytes: int = 1 << 20) -> None:
        self.model = Adder()
        self.plan = Plan(CpuBackend(ops=None), self.model, [], {"config": {"name": "adder"}})
        self.plan.capture()
        self.live = LiveState(self.plan, journal_bytes)
        self.count = 0

    def run(self, work: Work) -> None:
        if work.first_row is not None:
            self.live.will_write(work.first_row, work.rows)
        self.plan.clear_faults()
        for step in work.steps:
            self.plan.run(step)
        trouble = self.plan.fence()
        if trouble:
            raise ArithmeticError(trouble)

    def commit(self) -> Boundary:
        self.count += 1
        parent = self.live.head.id if self.live.head else ""
        recipe = Recipe(None, Begin("", 0))
        boundary = Boundary(f"b{self.count}", "observe", parent, self.live.chain, recipe, "", 0, ())
        self.live.commit(boundary)
        return boundary

    def append(self, *values: float) -> Boundary:
        with self.live.transaction(list):
            self.run(self.model.append(*values))
            return self.commit()

    def bytes(self) -> dict[str, bytes]:
        b, cursors = self.plan.buffers, self.live.chain.ends
        return {spec.name: b.live_bytes(spec.name, cursors).numpy().tobytes() for spec in b.state()}


@pytest.fixture
def head() -> Head:
    return Head()
