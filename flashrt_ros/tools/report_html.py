# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A replay's report as one HTML file that needs no network: verdict, tables, plots, pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from flashrt_ros.tools.replay_result import DIFFERENT, EQUAL, INCOMPLETE, Result, Run
from flashrt_ros.tools.report_plots import action_plots, age_plot, latency_plot, timeline_plot
from flashrt_ros.version import VERSION

SENTENCES = {
    "equal": "every byte is equal",
    "within": "all is within the bound",
    "different": "something differs",
    "incomplete": "something could not be replayed",
    "drawn": "chunks were drawn; none was recorded to compare with",
    "failed": "nothing could be replayed",
}

_STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:24px auto;max-width:900px;padding:0 12px;color:#1d2733}
h1{font-size:20px}h2{font-size:16px;margin-top:28px}table{border-collapse:collapse}
td,th{padding:2px 10px 2px 0;text-align:left;vertical-align:top}td.n{text-align:right}
.verdict{display:inline-block;padding:4px 12px;border-radius:4px;color:#fff;background:#b3261e}
.equal,.within,.drawn{background:#1b7f4b}.incomplete{background:#a15c00}
.bad{color:#b3261e}.wide{overflow-x:auto}figure{display:inline-block;margin:0 12px 12px 0}
figcaption{font-size:12px;color:#55606e;max-width:240px}img{image-rendering:pixelated;min-width:160px}
svg{display:block;max-width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:#55606e}
svg .title{font-weight:600;fill:#1d2733}svg .y{text-anchor:end}svg .x{text-anchor:middle}
svg path{fill:none}.grid{stroke:#e3e7ec}.recorded{stroke:#9aa5b1;stroke-width:4}
.run0{stroke:#0b63ce;stroke-width:1.5}.run1{stroke:#d1495b;stroke-width:1.5}.run2{stroke:#2e8b57;stroke-width:1.5}
.run3{stroke:#8e44ad;stroke-width:1.5}.run4{stroke:#b8860b;stroke-width:1.5}
circle{fill:#0b63ce}circle.then{fill:#9aa5b1}circle.worse{fill:#b3261e}
.open{fill:#1b7f4b}.closed{fill:#cfd6de}
.legend span{display:inline-block;margin-right:16px}
.legend i{display:inline-block;width:22px;height:4px;margin-right:5px}
@media(prefers-color-scheme:dark){body{background:#12171d;color:#dfe5ec}.grid{stroke:#2a333d}
svg .title{fill:#dfe5ec}svg text,figcaption{fill:#9aa5b1;color:#9aa5b1}}
"""
_COLOURS = ("#0b63ce", "#d1495b", "#2e8b57", "#8e44ad", "#b8860b")


def html_report(results: Sequence[Result], verdict: str) -> str:
    """The whole page."""
    title = results[0].bag if len(results) == 1 else f"{len(results)} replays"
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}: {verdict}</title>',
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>',
        f"<h1>Replay of {escape(title)}</h1>",
        f'<p><strong id="verdict" class="verdict {verdict}">{verdict}</strong> {SENTENCES[verdict]}</p>',
    ]
    if len(results) > 1:
        parts.append(_overview(results))
    for number, result in enumerate(results):
        parts.append(_one(result, f"bag{number}", headed=len(results) > 1))
    parts.append(f"<p>flashrt_ros {VERSION}</p></body></html>")
    return "\n".join(parts)


def _overview(results: Sequence[Result]) -> str:
    rows = [
        (f'<a href="#bag{number}">{escape(r.bag)}</a>', r.verdict, str(sum(len(run.chunks) for run in r.runs)))
        for number, r in enumerate(results)
    ]
    return _table(("bag", "verdict", "chunks"), rows)


def _one(result: Result, anchor: str, headed: bool) -> str:
    parts = [f'<h1 id="{anchor}">{escape(result.bag)}: {result.verdict}</h1>'] if headed else []
    if result.error:
        return "".join([*parts, f'<p class="bad">{escape(result.error)}</p>'])
    parts.append(_runs(result.runs))
    parts.append(_list("Of the bag", result.troubles))
    for run in result.runs:
        parts.append(_list(f"{run.name}: not as then", run.troubles))
        parts.append(_list(f"{run.name}: policy or device differ", [] if run.exact else run.foreign))
        parts.append(_list(f"{run.name}: notes", run.notes))
    parts.append(_safety(result.runs))
    if result.pictures:
        figures = "".join(
            f'<figure><img alt="{escape(p.title)}" src="data:image/png;base64,{p.png}">'
            f"<figcaption>{escape(p.title)}</figcaption></figure>"
            for p in result.pictures
        )
        parts.append(f"<h2>What the cameras showed</h2>{figures}")
    parts.append(f"<h2>Actions, rad or m</h2>{_legend(result.runs)}{''.join(action_plots(result))}")
    parts.append(f"<h2>Time</h2>{latency_plot(result)}{age_plot(result)}{timeline_plot(result)}")
    parts.append(_chunks(result.runs[0]) if result.runs else "")
    return "\n".join(parts)


def _runs(runs: Sequence[Run]) -> str:
    rows = [
        (
            escape(run.name),
            _judgement(run),
            str(len(run.chunks)),
            str(sum(chunk.verdict == EQUAL for chunk in run.chunks)),
            f"{run.largest:.3g}",
            _standard(run),
            _commands(run),
            escape(run.checkpoint),
        )
        for run in runs
    ]
    head = ("run", "verdict", "chunks", "equal", "largest difference", "judged by", "commands", "checkpoint")
    return _table(head, rows)


def _judgement(run: Run) -> str:
    if run.what_if:
        return "what if"
    return f'<span class="{"bad" if run.verdict in (DIFFERENT, INCOMPLETE) else ""}">{run.verdict}</span>'


def _standard(run: Run) -> str:
    if run.what_if:
        return "not judged"
    return "bytes must be equal" if run.exact else f"bound {run.bound:g}"


def _commands(run: Run) -> str:
    if run.commands is None:
        return "not replayed"
    good = run.commands.compared - len(run.commands.bad)
    return f"{good} of {run.commands.compared} as then"


def _safety(runs: Sequence[Run]) -> str:
    actions = [action for run in runs if run.commands is not None for action in run.commands.safety]
    if not actions:
        return ""
    rows = [
        (
            f"{action.stamp:.3f}",
            str(action.steps),
            escape(action.reason),
            "the same" if action.equal else f'<span class="bad">not the same: {escape(str(action.replayed))}</span>',
        )
        for action in actions
    ]
    return f"<h2>Safety actions</h2>{_table(('tick, s', 'steps before', 'gate', 'replayed'), rows)}"


def _chunks(run: Run) -> str:
    rows = [
        (
            str(chunk.number),
            f"{chunk.observed:.3f}",
            chunk.verdict,
            "" if chunk.difference is None else f"{chunk.difference:.3g}",
            f"{chunk.delay * 1e3:.1f}",
            f"{chunk.seconds * 1e3:.1f}",
            escape(chunk.trouble),
        )
        for chunk in run.chunks
    ]
    head = ("chunk", "observed, s", "verdict", "difference", "ms then", "ms now", "")
    return f"<h2>Chunks</h2>{_table(head, rows)}"


def _legend(runs: Sequence[Run]) -> str:
    names = [("#9aa5b1", "recorded"), *((_COLOURS[n % len(_COLOURS)], run.name) for n, run in enumerate(runs))]
    spans = "".join(f'<span><i style="background:{colour}"></i>{escape(name)}</span>' for colour, name in names)
    return f'<p class="legend">{spans}</p>'


def _list(title: str, lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<h2>{escape(title)}</h2><ul>{items}</ul>" if items else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells are HTML."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{top}</tr>{body}</table></div>'
