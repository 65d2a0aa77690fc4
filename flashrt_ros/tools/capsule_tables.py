# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the command `capsule` prints for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from flashrt_ros.tools.capsule_diff import CapsuleDifference

_SHOWN_DIGITS = 16


def listing(rows: Sequence[Mapping[str, Any]], unreadable: Mapping[str, str], title: str) -> RenderableType:
    """`ls`: one line a capsule, the newest first, then what cannot be read."""
    table = Table("capsule", "label", "boundary", "rows", "MB", "written", "pinned", "instruction", title=title)
    for row in rows:
        table.add_row(
            row["name"],
            row["label"],
            row["kind"],
            str(row["cursors"].get("position", 0)),
            f"{row['file_bytes'] / 1e6:.2f}",
            _day(row["created"]),
            "yes" if row["pinned"] else "",
            row["instruction"],
        )
    return Group(*([table] if rows else []), *(Text(reason, "red") for reason in unreadable.values()))


def details(shown: Mapping[str, Any]) -> RenderableType:
    """`show`: what a header says, its regions and its inputs."""
    facts = Table(show_header=False, title=shown["path"])
    for key in ("name", "label", "parent", "boundary", "kind", "instruction", "version", "sha256"):
        facts.add_row(key, str(shown[key]))
    facts.add_row("written", _day(shown["created"]))
    facts.add_row("observation", f"{shown['stamp'] / 1e9:.3f} s")
    facts.add_row("joints", ", ".join(f"{joint:.4f}" for joint in shown["measured"]))
    facts.add_row("cursors", ", ".join(f"{name} {row}" for name, row in shown["cursors"].items()))
    facts.add_row("taken by", "the node itself" if shown["automatic"] else "somebody's request")
    kinds = Counter(event["event"] for event in shown["recipe"])
    facts.add_row("inputs", ", ".join(f"{count} {kind}" for kind, count in kinds.items()))
    manifest = Table("part", "name", "value", title="manifest")
    for part, values in shown["manifest"].items():
        for name, value in values.items() if part != "layout" else ():
            manifest.add_row(part, name, value)
    regions = Table("state buffer", "dtype", "shape of the live part", "bytes", "sha256", title="regions")
    for region in shown["regions"]:
        shape = " x ".join(map(str, region["shape"]))
        regions.add_row(
            region["name"], region["dtype"], shape, f"{region['nbytes']:,}", region["sha256"][:_SHOWN_DIGITS]
        )
    return Group(facts, manifest, regions)


def difference(found: CapsuleDifference, names: tuple[str, str]) -> RenderableType:
    """`diff`: in what two capsules differ."""
    lines = [Text(line) for line in (*found.header, *found.manifest)]
    ours, theirs, common = found.inputs
    inputs = f"inputs: {ours} and {theirs}, the first {common} of them are the same"
    table = Table("state buffer", *(f"rows of {name}" for name in names), "largest difference", "what")
    for buffer in found.buffers:
        rows = ["absent" if count < 0 else str(count) for count in buffer.rows]
        table.add_row(buffer.name, *rows, "" if buffer.largest is None else f"{buffer.largest:.3g}", buffer.what)
    equal = Text(f"{found.equal_buffers} state buffers are equal{'' if found.buffers else ', none differs'}")
    return Group(*lines, Text(inputs), *([table] if found.buffers else []), equal)


def _day(created: int) -> str:
    return datetime.fromtimestamp(created / 1e9).astimezone().isoformat(" ", "seconds")
