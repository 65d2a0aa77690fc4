# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from flashrt_ros.demo.printing import print_logs, print_verdicts, table_console


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=80)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_verdict_is_printed_as_it_stands(console: Console) -> None:
    print_verdicts(console, [("rows [0] are whole", True), ("no [late] one", False)])
    assert printed(console) == "yes  rows [0] are whole\nNO  no [late] one\n"


def test_the_end_of_each_log_is_printed_as_it_stands(console: Console, tmp_path: Path) -> None:
    log = tmp_path / "[one].log"
    log.write_text("".join(f"[line] {number}\n" for number in range(30)))
    print_logs(console, [log])
    head, *lines = printed(console).splitlines()
    assert head == f"--- the end of {log} ---"
    assert lines == [f"[line] {number}" for number in range(10, 30)]


def test_a_line_is_whole_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console = table_console()
    console.print("word " * 60)
    console.print(Table(*(f"a column of {number}" for number in range(7))))
    line, _, head, *_ = capsys.readouterr().out.splitlines()
    assert line.count("word") == 60
    assert head.count("a column of") == 7
