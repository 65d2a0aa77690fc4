# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The plots of a replay's report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flashrt_ros.tools.replay_result import DIFFERENT, ChunkResult, Result, Run
from flashrt_ros.tools.report_svg import Plot, Point, extent

_LANES = ("policy", "gate", "verbs", "act", "observe")
_STYLES = 5


def action_plots(result: Result) -> Iterator[str]:
    """One plot a joint: each chunk's rows over the time of their ticks, recorded and of every run."""
    for joint, name in enumerate(result.joints):
        recorded = list(_rows(result.runs[:1], result.period, joint, of_recording=True))
        drawn = [list(_rows([run], result.period, joint, of_recording=False)) for run in result.runs]
        every = [point for pieces in (recorded, *drawn) for piece in pieces for point in piece]
        plot = Plot(name, extent(x for x, _ in every), extent(y for _, y in every), height=150)
        plot.x_axis("s")
        plot.y_axis("")
        plot.lines(recorded, "recorded")
        for number, pieces in enumerate(drawn):
            plot.lines(pieces, f"run{number % _STYLES}")
        yield plot.svg()


def latency_plot(result: Result) -> str:
    """How long drawing each chunk took, then and now."""
    chunks = _chunks(result)
    then = [(float(chunk.number), chunk.delay * 1e3) for chunk in chunks if chunk.delay]
    now = [(float(chunk.number), chunk.seconds * 1e3) for chunk in chunks]
    plot = _over_chunks("time to draw a chunk: then (grey) and now", [*then, *now], "ms")
    plot.points(then, "then")
    plot.points(now, "now")
    return plot.svg()


def age_plot(result: Result) -> str:
    """How old the oldest part of each chunk's observation was when the chunk was there."""
    points = [(float(chunk.number), chunk.age * 1e3) for chunk in _chunks(result)]
    plot = _over_chunks("age of the observation when its chunk was there", points, "ms")
    plot.points(points, "then")
    return plot.svg()


def timeline_plot(result: Result) -> str:
    """Boundaries, verbs, gate and policy state over the time of recording."""
    ends = [event.time for event in result.timeline]
    low, high = extent(ends)
    plot = Plot("boundaries and verbs", (low, high), (-0.5, len(_LANES) - 0.5), height=60 + 34 * len(_LANES))
    plot.x_axis("s of recording")
    bad = [chunk.time for chunk in _chunks(result) if chunk.verdict == DIFFERENT]
    for row, lane in enumerate(_LANES):
        plot.lane(row, lane)
        events = [event for event in result.timeline if event.lane == lane]
        if lane in ("gate", "policy"):
            stops = [*(event.time for event in events[1:]), high]
            for event, stop in zip(events, stops, strict=False):
                good = event.label in ("open", "running")
                plot.bar(event.time, stop, row, "open" if good else "closed", event.label)
            continue
        for event in events:
            worse = lane == "act" and any(abs(event.time - time) < 1e-6 for time in bad)
            plot.points([(event.time, row)], "worse" if worse else "now", [f"{event.time:.3f} s: {event.label}"])
        if lane == "verbs":
            plot.labels([(event.time, row) for event in events], [event.label.partition(" ")[0] for event in events])
    return plot.svg()


def _chunks(result: Result) -> list[ChunkResult]:
    return result.runs[0].chunks if result.runs else []


def _rows(runs: Iterable[Run], period: float, joint: int, of_recording: bool) -> Iterator[list[Point]]:
    for run in runs:
        for chunk in run.chunks:
            rows = chunk.recorded if of_recording else chunk.rows
            if rows and joint < len(rows[0]):
                yield [(chunk.observed + number * period, row[joint]) for number, row in enumerate(rows)]


def _over_chunks(title: str, points: list[Point], unit: str) -> Plot:
    plot = Plot(title, extent(x for x, _ in points), (0.0, extent(y for _, y in points)[1]), height=150)
    plot.x_axis("chunk")
    plot.y_axis(unit)
    return plot
