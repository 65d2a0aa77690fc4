# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The stages of a policy, each by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flashrt_ros.models.hybrid import Hybrid
from flashrt_ros.models.observation import ModelObservation
from flashrt_ros.models.qwen3_5_text import POSITION, ROPE_DELTA
from flashrt_ros.policy.loading import Policy
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.plan import Step
from flashrt_ros.tools.bench.stages_ceilings import Ceilings
from flashrt_ros.tools.bench.stages_clock import Clock, Times
from flashrt_ros.tools.bench.stages_work import StageWork, Work


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage's times in seconds, its work, and the least time that the ceilings allow for it."""

    name: str
    p50: float
    p99: float
    host: float
    nbytes: float
    operations: float
    floor: float

    @property
    def ratio(self) -> float:
        """How many times the floor it takes."""
        return self.p50 / self.floor


class Rig:
    """A policy whose context can be put anywhere; only its plan is used, so no session may run beside it."""

    def __init__(self, policy: Policy, clock: Clock) -> None:
        self.policy, self.clock = policy, clock
        assert isinstance(policy.model, Hybrid)
        self.plan, self.model = policy.plan, policy.model
        self.work = StageWork(policy.model)
        self._rng = np.random.default_rng(0)

    def prefill(self, rows: int) -> None:
        """Append `rows` rows to an empty context, by the longest segments there can be."""
        self.place(0)
        for step in self.text(rows):
            self.plan.run(step)
        self.check()

    def text(self, rows: int) -> list[Step]:
        """The steps that append so many rows of random text."""
        longest = self.model.config.max_instruction_tokens
        sizes = [longest] * (rows // longest) + ([rows % longest] if rows % longest else [])
        steps: list[Step] = []
        for size in sizes:
            tokens = self._rng.integers(0, self.model.config.text.vocab_size, size)
            steps += self.model.instruct(tokens).steps
        return steps

    def observe(self) -> list[Step]:
        """The steps that append an observation of noise."""
        c = self.model.config
        images = self._rng.integers(0, 256, (len(c.views), *c.image_size, 3), dtype=np.uint8)
        seen = ModelObservation(images, np.zeros(c.state_dim, np.float32))
        return list(self.model.observe(seen, np.zeros(1, np.int64)).steps)

    def run(self, steps: list[Step]) -> None:
        """Replay the steps."""
        for step in steps:
            self.plan.run(step)

    def place(self, rows: int) -> None:
        """Put the cursors behind so many rows, and the denoising before its first step."""
        b = self.plan.buffers
        b[POSITION].fill_(rows)
        b[ROPE_DELTA].zero_()
        b["step"].zero_()

    def measure(self, steps: list[Step], repeats: int, rows: int) -> Times:
        """Time the steps behind so many rows; NOT_FINITE if they make a NaN."""
        self.plan.clear_faults()
        found = self.clock.measure(lambda: self.run(steps), repeats, lambda: self.place(rows))
        self.check()
        return found

    def check(self) -> None:
        """Wait; NOT_FINITE if a stage made a NaN, so that times of nonsense are not told."""
        trouble = self.plan.fence()
        if trouble:
            raise FlashrtError(ErrorCode.NOT_FINITE, f"the stages that are measured fail: {trouble}")


def measure_stages(
    rig: Rig, ceilings: Ceilings, position: int, repeats: int, progress: Callable[[str], None]
) -> list[StageRow]:
    """Measure each stage behind `position` rows, what acts and says with an observation behind them."""
    found = []
    for step, work in stage_work(rig, position):
        progress(f"stage {step.stage}")
        rig.place(position)
        rig.run([*rig.observe(), rig.model.speech.begin()])
        times = rig.measure([step], repeats, position)
        floor = ceilings.seconds(work.nbytes, work.operations)
        found.append(StageRow(step.stage, times.p50, times.p99, times.host_p50, work.nbytes, work.operations, floor))
    return found


def stage_work(rig: Rig, position: int) -> list[tuple[Step, Work]]:
    """A step of each stage that moves more than a few bytes, and its work behind `position` rows."""
    work, encode, condition = rig.work, rig.observe()[0], rig.model.rows_to_observe(0)
    appends = []
    for size in rig.model.stage_sizes:
        (step,) = rig.text(size)
        appends.append((step, work.append(size, position)))
    begin, step = rig.model.act().steps[:2]
    return [
        (encode, work.encode_images()),
        *appends,
        (rig.model.speech.begin(), work.say_begin(position)),
        (rig.model.speech.step((), 1, 0), work.say_step(position)),
        (begin, work.denoise_begin(condition)),
        (step, work.denoise_step(condition)),
    ]
