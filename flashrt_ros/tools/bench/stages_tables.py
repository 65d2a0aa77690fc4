# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the benchmark of stages shows, and what it must reach."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from flashrt_ros.tools.bench.stages_speeds import COLD, RESUMED, TOKEN, Speed

if TYPE_CHECKING:
    from flashrt_ros.tools.bench.stages import Figures

BARS = {
    ("snapshot", 16384): (160e-6, 130e-6),
    ("restore", 16384): (160e-6, 130e-6),
    ("rollback", 2048): (40e-6, 20e-6),
    ("rollback", 16384): (40e-6, 20e-6),
    (RESUMED, 16384): (3.0e-3, 1.9e-3),
    (COLD, 16384): (130e-3, 105e-3),
    (TOKEN, 4096): (1.7e-3, 1.3e-3),
    ("observe and act", 4096): (9e-3, 6.5e-3),
}
"""Seconds to reach and to aim at, by what and at how many tokens: on an H200, 2B, bfloat16."""

COLD_OVER_RESTORED = {2048: 3.9, 16384: 27.0}
"""Execution-State Capsules (arXiv 2606.20537)."""

ROLLBACK_SPREAD = 1.2
"""Slowest over fastest, of lengths: a rollback copies the same bytes at each."""

_KERNELS_SHOWN = 8


def verdicts(figures: Figures) -> list[tuple[str, bool]]:
    """What must hold, and whether it does; the bars are those of an H200, and hold nobody else."""
    found = [(f"nothing is captured after the start ({figures.captures})", figures.captures == 0)]
    if figures.allocated is not None:
        found.append((f"no device memory is taken after the start ({figures.allocated} bytes)", not figures.allocated))
    if "H200" not in figures.device or (figures.size, figures.precision) != ("2B", "bfloat16"):
        return found
    for row in figures.speeds:
        reach = BARS.get((row.name, row.tokens), (None, None))[0]
        if reach is not None:
            text = f"{row.name} at {row.tokens} tokens in {_time(row.p50)}, within {_time(reach)}"
            found.append((text, row.p50 <= reach))
    rollbacks = [row.p50 for row in figures.speeds if row.name == "rollback"]
    spread = max(rollbacks) / min(rollbacks)
    found.append((f"rollback takes the same at every length: {spread:.2f}x", spread <= ROLLBACK_SPREAD))
    for tokens, ratio in cold_over_restored(figures.speeds).items():
        wanted = COLD_OVER_RESTORED.get(tokens)
        if wanted is not None:
            found.append((f"cold over restored at {tokens} tokens: {ratio:.1f}x, at least {wanted}x", ratio >= wanted))
    return found


def cold_over_restored(speeds: list[Speed]) -> dict[int, float]:
    """By length: how often the time from a restore to the first token behind a segment goes into that from nothing."""
    by_name = {(row.name, row.tokens): row.p50 for row in speeds}
    return {tokens: seconds / by_name[RESUMED, tokens] for (name, tokens), seconds in by_name.items() if name == COLD}


def tables(figures: Figures) -> list[Table]:
    """Ceilings, stages, speeds, verbs, and kernels where they were measured."""
    found = [_ceilings(figures), _stages(figures), _speeds(figures), _verbs(figures)]
    return [*found, _kernels(figures)] if figures.kernels else found


def _ceilings(figures: Figures) -> Table:
    c = figures.ceilings
    device = f"{figures.size}, {figures.precision}, on {figures.device}"
    table = Table("the device alone", "copy", "read", f"multiply, {c.precision}", box=SIMPLE_HEAD)
    table.add_row(device, f"{c.copy / 1e9:.0f} GB/s", f"{c.read / 1e9:.0f} GB/s", f"{c.multiply / 1e12:.2f} TFLOP/s")
    return table


def _stages(figures: Figures) -> Table:
    columns = ("stage", "p50", "p99", "host", "MB", "GFLOP", "floor", "ratio")
    table = Table(*columns, title="stages; host: to ask for one; floor: by the rates above", box=SIMPLE_HEAD)
    for row in figures.stages:
        work = (f"{row.nbytes / 1e6:.1f}", f"{row.operations / 1e9:.1f}")
        times = (_time(row.p50), _time(row.p99), _time(row.host))
        table.add_row(row.name, *times, *work, _time(row.floor), f"{row.ratio:.2f}x")
    return table


def _speeds(figures: Figures) -> Table:
    columns = ("what", "tokens", "p50", "p99", "MB copied", "floor", "ratio", "reach", "aim")
    table = Table(*columns, title="on the device", box=SIMPLE_HEAD)
    for row in figures.speeds:
        bars = [_time(bar) for bar in BARS.get((row.name, row.tokens), ())] or ["", ""]
        copied = f"{row.copied / 1e6:.1f}" if row.copied else ""
        times = (_time(row.p50), _time(row.p99))
        table.add_row(row.name, str(row.tokens), *times, copied, _time(row.floor), f"{row.ratio:.2f}x", *bars)
    for tokens, ratio in cold_over_restored(figures.speeds).items():
        table.add_row("cold over restored", str(tokens), f"{ratio:.1f}x")
    return table


def _verbs(figures: Figures) -> Table:
    table = Table("verb", "tokens", "p50", "p99", title="verbs of a session, on the wall's clock", box=SIMPLE_HEAD)
    for row in figures.verbs:
        table.add_row(row.name, str(row.tokens), _time(row.p50), _time(row.p99))
    return table


def _kernels(figures: Figures) -> Table:
    table = Table("stage", "kernel", "launches", "time", "part", title="each kernel by itself", box=SIMPLE_HEAD)
    for stage, group in groupby(figures.kernels, key=lambda row: row.stage):
        rows = list(group)
        total = sum(row.seconds for row in rows)
        table.add_row(stage, "all", f"{sum(row.launches for row in rows):.0f}", _time(total), "")
        for row in rows[:_KERNELS_SHOWN]:
            part = f"{row.seconds / total:.0%}"
            table.add_row("", row.kernel[:60], f"{row.launches:.0f}", _time(row.seconds), part)
    return table


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"
