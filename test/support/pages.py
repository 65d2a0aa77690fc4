# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the pages of doc/ say."""

from __future__ import annotations

import re
from pathlib import Path

DOC = Path(__file__).resolve().parents[2] / "doc"


def first_column(page: str, heading: str) -> set[str]:
    """The words in backticks of the first column of a page's table, by the heading of that column."""
    rows = (DOC / page).read_text().partition(f"\n| {heading} |")[2].partition("\n\n")[0].splitlines()[1:]
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row.split("|")[1])}
