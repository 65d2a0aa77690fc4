# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A pytest fixture that replays bags, so that an incident of yesterday is a test of tomorrow.

It is there wherever flashrt_ros is installed:

    def test_the_incident_at_the_dock(replay):
        assert replay("bags/dock", "checkpoints/pick").matches()
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from flashrt_ros.tools.replay_result import Result

_SHOWN = 5


class Replayed:
    """What a replay found; its text says what is not as it was recorded.

    Attributes:
        result: all of it.
    """

    def __init__(self, result: Result) -> None:
        self.result = result

    def matches(self) -> bool:
        """Whether every chunk, and in lockstep every command, is as recorded: to the byte, or within the bound.

        A bag that has no chunks does not match: there is nothing to match with.
        """
        return self.result.verdict in ("equal", "within")

    def write_report(self, path: str | Path) -> None:
        """Write the HTML report."""
        from flashrt_ros.tools.report_html import html_report

        Path(path).write_text(html_report([self.result], self.result.verdict))

    def __repr__(self) -> str:
        from flashrt_ros.tools.replay_output import lines_of

        lines = lines_of(self.result)
        more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        return f"<replay of {self.result.bag}: {'; '.join([self.result.verdict, *lines[:_SHOWN]])}{more}>"


@pytest.fixture
def replay() -> Callable[..., Replayed]:
    """`replay(bag, checkpoint, **options)`; the options are the fields of tools.replay_job.Job, e.g. contract."""

    def run(bag: str | Path, checkpoint: str | Path, **options: Any) -> Replayed:
        from flashrt_ros.tools.replay_job import Job, run_job  # imports torch

        return Replayed(run_job(Job(str(bag), (str(checkpoint),), **options)))

    return run
