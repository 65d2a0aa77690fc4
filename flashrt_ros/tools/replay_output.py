# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A replay's result on a terminal, as JSON, and as JUnit XML."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from flashrt_ros.tools.replay_result import DIFFERENT, EQUAL, INCOMPLETE, Result, Run, worst
from flashrt_ros.tools.report_html import SENTENCES

_SHOWN = 12


def overall(results: Sequence[Result]) -> str:
    """The gravest verdict."""
    return worst([result.verdict for result in results])


def print_results(results: Sequence[Result], console: Console) -> None:
    """Print a table of the runs, and what is not as it should be."""
    named = [Column(name, overflow="fold") for name in ("bag", "run")]
    table = Table(*named, "verdict", "chunks", "equal", "largest", "judged by", "commands", box=SIMPLE_HEAD)
    for result in results:
        for run in result.runs:
            equal = sum(chunk.verdict == EQUAL for chunk in run.chunks)
            table.add_row(
                escape(result.bag), escape(run.name), _judgement(run), str(len(run.chunks)), str(equal),
                f"{run.largest:.3g}", _standard(run), _commands(run),
            )  # fmt: skip
        if result.error:
            table.add_row(escape(result.bag), "", result.verdict)
    console.print(table)
    for result in results:
        for line in lines_of(result):
            console.print(f"  {escape(line)}")
    verdict = overall(results)
    console.print(f"[bold]{verdict}[/]: {SENTENCES[verdict]}")


def as_json(results: Sequence[Result]) -> str:
    """Everything, with the verdicts."""
    data = {"verdict": overall(results), "results": [result.as_dict() for result in results]}
    return json.dumps(data, indent=1, allow_nan=False)


def as_junit(results: Sequence[Result]) -> str:
    """One suite a bag, one case a chunk, and one for the commands."""
    suites = ElementTree.Element("testsuites", name="replay")
    for result in results:
        suite = ElementTree.SubElement(suites, "testsuite", name=result.bag)
        if result.error:
            _case(suite, "replay", 0.0, "error", result.error)
        for run in result.runs:
            if not run.what_if:
                _judged(suite, run)
        _count(suite)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _judged(suite: ElementTree.Element, run: Run) -> None:
    for chunk in run.chunks:
        name = f"chunk {chunk.number} at {chunk.observed:.3f} s"
        if chunk.verdict == DIFFERENT:
            off = "its bytes" if chunk.difference is None else f"by {chunk.difference:.3g}"
            wanted = "every byte must be equal" if run.exact else f"{run.bound:g} is allowed"
            _case(suite, name, chunk.seconds, "failure", f"differs in {off}; {wanted}")
        elif chunk.verdict == INCOMPLETE:
            _case(suite, name, chunk.seconds, "error", chunk.trouble)
        else:
            _case(suite, name, chunk.seconds)
    if run.commands is not None:
        bad = run.commands.bad
        text = f"{len(bad)} of {run.commands.compared} commands differ, the first at {bad[0]:.3f} s" if bad else ""
        _case(suite, "commands", 0.0, "failure" if bad and run.commands.judged else "", text)


def _case(suite: ElementTree.Element, name: str, seconds: float, outcome: str = "", message: str = "") -> None:
    case = ElementTree.SubElement(suite, "testcase", name=name, classname=suite.get("name", ""), time=f"{seconds:.6f}")
    if outcome:
        ElementTree.SubElement(case, outcome, message=message)


def _count(suite: ElementTree.Element) -> None:
    cases = list(suite)
    suite.set("tests", str(len(cases)))
    for outcome, plural in (("failure", "failures"), ("error", "errors")):
        suite.set(plural, str(sum(case.find(outcome) is not None for case in cases)))


def _judgement(run: Run) -> str:
    return "what if" if run.what_if else run.verdict


def _standard(run: Run) -> str:
    if run.what_if:
        return "-"
    return "bytes" if run.exact else f"bound {run.bound:g}"


def _commands(run: Run) -> str:
    if run.commands is None:
        return "-"
    return f"{run.commands.compared - len(run.commands.bad)}/{run.commands.compared}"


def lines_of(result: Result) -> list[str]:
    """What is not as it was then."""
    if result.error:
        return [f"{result.bag}: {result.error}"]
    lines = [f"{result.bag}: {trouble}" for trouble in result.troubles]
    for run in result.runs:
        lines += [f"{run.name}: {trouble}" for trouble in run.troubles[:_SHOWN]]
        lines += [f"{run.name}: {note}" for note in run.notes[:_SHOWN]]
        lines += [f"{run.name}: {foreign}" for foreign in run.foreign]
        wrong = next((chunk for chunk in run.chunks if chunk.verdict == DIFFERENT), None)
        if wrong is not None and not run.what_if:
            lines.append(
                f"{run.name}: chunk {wrong.number} is the first that differs, observed at {wrong.observed:.3f} s"
            )
        if run.commands is not None and run.commands.judged:
            bad = [action for action in run.commands.safety if not action.equal]
            lines += [f"{run.name}: another safety action at {action.stamp:.3f} s ({action.reason})" for action in bad]
    return lines
