# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the verbs are made of, over the length of the context: copies, prefills, a token, an observation and a chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flashrt_ros.runtime.backend import Saved
from flashrt_ros.tools.bench.stages_ceilings import Ceilings
from flashrt_ros.tools.bench.stages_clock import Times
from flashrt_ros.tools.bench.stages_run import Rig
from flashrt_ros.tools.bench.stages_work import Work

SEGMENT = 64
"""Rows that are appended to a restored context."""

COLD, RESUMED, TOKEN = f"cold, {SEGMENT} rows, first token", f"restore, {SEGMENT} rows, first token", "one token"


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds on the device, the bytes copied if it is a copy, and the least time that the ceilings allow."""

    name: str
    tokens: int
    p50: float
    p99: float
    floor: float
    copied: int = 0

    @property
    def ratio(self) -> float:
        """How many times the floor it takes."""
        return self.p50 / self.floor


def measure_speeds(
    rig: Rig, ceilings: Ceilings, lengths: Sequence[int], position: int, repeats: int, progress: Callable[[str], None]
) -> list[Speed]:
    """Measure at each length, and an observation with its chunk and one token behind `position` rows."""
    found = []
    for length in lengths:
        progress(f"{length} tokens")
        found += _at(rig, ceilings, length, repeats)
    progress(f"observation and token at {position} tokens")
    rig.prefill(position)
    rig.run([rig.model.speech.begin()])
    said = rig.measure([rig.model.speech.step((), 1, 0)], repeats, position)
    found.append(_speed(TOKEN, position, said, _floor(ceilings, rig.work.say_step(position))))
    return [*found, _observe_and_act(rig, ceilings, position, repeats)]


def _at(rig: Rig, ceilings: Ceilings, length: int, repeats: int) -> list[Speed]:
    plan, clock = rig.plan, rig.clock
    first = [*rig.text(SEGMENT), rig.model.speech.begin()]
    cold = rig.text(length) + first
    prefilling = rig.measure(cold, max(2, repeats // 20), 0)
    rig.prefill(length)
    rig.place(length)
    small, ranges = plan.buffers.small_ranges(), plan.buffers.row_ranges({"position": length})

    def save() -> Saved:
        return plan.backend.save(plan.buffers, [*small, *ranges])

    saving = clock.measure(save, repeats)
    whole, ancestor = save(), plan.backend.save(plan.buffers, small)
    loading = clock.measure(lambda: plan.backend.load(plan.buffers, whole), repeats)
    rolling_back = clock.measure(lambda: plan.backend.load(plan.buffers, ancestor), repeats)

    def resume() -> None:
        plan.backend.load(plan.buffers, whole)
        rig.run(first)

    resuming = clock.measure(resume, repeats)
    rig.check()
    copy = ceilings.copying(whole.nbytes)
    behind = _floor(ceilings, rig.work.append(SEGMENT, length)) + _floor(ceilings, rig.work.say_begin(length))
    return [
        _speed("snapshot", length, saving, copy, whole.nbytes),
        _speed("restore", length, loading, copy, whole.nbytes),
        _speed("rollback", length, rolling_back, ceilings.copying(ancestor.nbytes), ancestor.nbytes),
        _speed(RESUMED, length, resuming, copy + behind, whole.nbytes),
        _speed(COLD, length, prefilling, _cold_floor(rig, ceilings, length) + behind),
    ]


def _observe_and_act(rig: Rig, ceilings: Ceilings, position: int, repeats: int) -> Speed:
    steps = rig.observe() + list(rig.model.act().steps)
    times = rig.measure(steps, repeats, position)
    work, head = rig.work, rig.model.config.head
    rows = rig.model.rows_to_observe(0)
    parts = [work.encode_images(), work.append(rows, position), work.denoise_begin(rows)]
    parts += [work.denoise_step(rows)] * head.steps
    return _speed("observe and act", position, times, sum(_floor(ceilings, part) for part in parts))


def _cold_floor(rig: Rig, ceilings: Ceilings, length: int) -> float:
    """Of a prefill by the largest stage: what the split of a context into stages cannot do without."""
    size = max(rig.model.stage_sizes)
    starts = range(0, length, size)
    return sum(_floor(ceilings, rig.work.append(min(size, length - start), start)) for start in starts)


def _floor(ceilings: Ceilings, work: Work) -> float:
    return ceilings.seconds(work.nbytes, work.operations)


def _speed(name: str, tokens: int, times: Times, floor: float, copied: int = 0) -> Speed:
    return Speed(name, tokens, times.p50, times.p99, floor, copied)
