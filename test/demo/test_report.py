# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import json

from builtin_interfaces.msg import Duration
from rich.console import Console

from flashrt_interfaces import srv
from flashrt_ros.demo.report import Report, Verdict, verb_row


def response(milliseconds: float, **fields: int) -> srv.Restore.Response:
    return srv.Restore.Response(taken=Duration(nanosec=round(milliseconds * 1e6)), **fields)


ROW = verb_row("restore", [response(9.0), response(1.0), response(2.5, bytes_copied=1234567, position=72)])


def printed(report: Report) -> str:
    text = io.StringIO()
    report.print(Console(file=text, width=80))
    return text.getvalue()


def test_a_row_has_the_median_time_and_the_last_counts() -> None:
    assert (ROW.milliseconds, ROW.bytes_copied, ROW.position, ROW.calls) == (2.5, 1234567, 72, 3)


def test_everything_is_printed() -> None:
    text = printed(Report((ROW,), (Verdict("a = b", True, "x[0] is y"), Verdict("c = d", False, "z")), ("a note",)))
    assert all(word in text for word in ("restore", "2.50", "1,234,567", "72", "a note", "x[0] is y"))
    assert "a = b: yes" in text
    assert "c = d: NO" in text


def test_one_no_is_a_no() -> None:
    report = Report((ROW,), (Verdict("a = b", True, ""), Verdict("c = d", False, "")))
    assert not report.held
    assert json.loads(json.dumps(report.as_dict()))["held"] is False
    assert Report((ROW,), report.verdicts[:1]).held
